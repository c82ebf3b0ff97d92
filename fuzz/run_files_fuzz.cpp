// rooms: core report
// The files of a run, between lines of three dashes: training.jsonl, events.jsonl, run.json,
// validation.jsonl. They are read whole, reported and drawn, and followed while they grow.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "fuzz/input.h"
#include "report/page/page.h"
#include "report/records/run_files.h"
#include "report/records/run_follower.h"
#include "report/watch/watch_picture.h"

namespace {

using namespace automodel;

constexpr const char* kFiles[] = {"training.jsonl", "events.jsonl", "run.json", "validation.jsonl"};

/// NaN is the same as NaN.
bool same(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i] && (a[i] == a[i] || b[i] == b[i])) return false;
  }
  return true;
}

/// A run that is read as it grows is the run that is read at its end.
void check_following(const fuzz::Folder& folder, const std::string& training) {
  folder.write("training.jsonl", std::string_view(training).substr(0, training.size() / 2));
  report::RunFollower follower(folder.path(), "run");
  folder.write("training.jsonl", training);
  follower.update();
  const report::RecordedRun whole = report::read_run(folder.path());
  const report::StepTable &a = whole.steps, &b = follower.run().steps;
  for (size_t i = 0; i < report::kNumMetrics; ++i) {
    if (!same(a.metrics[i], b.metrics[i])) std::abort();
  }
  if (a.step != b.step || !same(a.tokens, b.tokens)) std::abort();
  if (whole.num_unread_lines != follower.run().num_unread_lines) std::abort();
}

/// Columns stay of one length, and the last value of each stays.
void check_thinning(report::StepTable steps) {
  const std::vector<double> before = steps.of(report::Metric::kLoss);
  report::thin(steps, {4, 1});
  const auto is_short = [&](const std::vector<double>& column) {
    return column.size() != steps.size();
  };
  for (const auto& column : steps.metrics) {
    if (is_short(column)) std::abort();
  }
  for (const auto& column : steps.parts) {
    if (is_short(column)) std::abort();
  }
  for (const auto& column : steps.extras) {
    if (is_short(column.values)) std::abort();
  }
  const std::vector<double>& after = steps.of(report::Metric::kLoss);
  if (!before.empty() && !same({before.back()}, {after.back()})) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  std::vector<std::string> parts = fuzz::split_parts(data, size);
  parts.resize(std::size(kFiles));
  // The last line is whole: what a follower leaves for the next time is another's test.
  for (size_t i = 0; i < 2; ++i) {
    if (!parts[i].empty()) parts[i] += '\n';
  }
  for (size_t i = 0; i < parts.size(); ++i) folder.write(kFiles[i], parts[i]);
  const report::RecordedRun run = report::read_run(folder.path());
  if (size % 4 == 0) {  // drawing takes ten times as long as reading
    report::report_page(report::RunViews{run}, report::LivePage{});
    report::watch_picture({&run}, {});
  }
  for (size_t row = 0; row < run.steps.size() && row < 3; ++row) report::step_text(run, row);
  for (const report::RunEvent& event : run.events) report::event_text(run, event);
  check_thinning(run.steps);
  check_following(folder, parts[0]);
  return 0;
}
