// rooms: core report
// The files of a run, between lines of three dashes: training.jsonl, events.jsonl, run.json,
// validation.jsonl. They are read whole, reported and drawn, and followed while they grow.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "fuzz/input.h"
#include "report/page.h"
#include "report/run_files.h"
#include "report/run_follower.h"
#include "report/watch_picture.h"

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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  std::vector<std::string> parts = fuzz::split_parts(data, size);
  parts.resize(std::size(kFiles));
  // The last line is whole: what a follower leaves for the next time is another's test.
  if (!parts[0].empty()) parts[0] += '\n';
  for (size_t i = 0; i < parts.size(); ++i) folder.write(kFiles[i], parts[i]);
  const report::RecordedRun run = report::read_run(folder.path());
  if (size % 4 == 0) {  // drawing takes ten times as long as reading
    report::report_page({run}, report::LivePage{});
    report::watch_picture({&run}, {});
  }
  for (size_t row = 0; row < run.steps.size() && row < 3; ++row) report::step_text(run, row);
  check_following(folder, parts[0]);
  return 0;
}
