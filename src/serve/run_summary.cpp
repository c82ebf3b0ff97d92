#include "serve/run_summary.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/file.h"
#include "core/text.h"
#include "core/utf8.h"
#include "report/facts/time_left.h"

namespace automodel::serve {

namespace {

constexpr uint64_t kTailBytes = 1 << 16;       // of a file: some two hundred steps
constexpr uint64_t kEventTailBytes = 1 << 18;  // a record of many experts is long

/// The value of a recipe's key; "" where it has none.
std::string value_of(const Json& description, std::string_view key) {
  const Json* values = description.find("values");
  const Json* entry = values == nullptr ? nullptr : values->find(key);
  const Json* value = entry == nullptr ? nullptr : entry->find("value");
  return value == nullptr || value->is_null() ? "" : report::value_text(*value);
}

bool has_section(const Json& description, std::string_view name) {
  const Json* values = description.find("values");
  if (values == nullptr || !values->is_object()) return false;
  const std::string begin = cat(name, ".");
  return std::ranges::any_of(values->as_object(),
                             [&](const auto& value) { return value.first.starts_with(begin); });
}

/// As `automodel ls` calls the tasks of recipes, where the recipe's values tell.
std::string task_of(const Json& description) {
  const std::string recipe = value_of(description, "recipe");
  if (recipe.find("KnowledgeDistillation") != std::string::npos) return "distillation";
  if (recipe.find("Diffusion") != std::string::npos) return "diffusion";
  if (has_section(description, "peft")) {
    return has_section(description, "quantization") ? "QLoRA" : "LoRA";
  }
  if (value_of(description, "model._target_").ends_with(".from_config")) return "pretraining";
  return recipe.empty() ? "" : "fine-tuning";
}

/// The last part of a path that tells something: of RUN/epoch_0_step_59/model/consolidated and
/// RUN/LATEST/model the run and the checkpoint.
std::string telling_part(std::string path) {
  bool is_of_checkpoint = false;
  for (const char* layer : {"consolidated", "model"}) {
    if (file_name(path) != layer || parent_path(path) == ".") continue;
    path = parent_path(path);
    is_of_checkpoint = true;
  }
  const std::string run = file_name(parent_path(path));
  const bool has_run = is_of_checkpoint && run != "." && !run.empty();
  return has_run ? cat(run, "/", file_name(path)) : file_name(path);
}

std::string model_of(const Json& description) {
  std::string name = value_of(description, "model.pretrained_model_name_or_path");
  while (name.ends_with('/')) name.pop_back();
  const bool is_export = file_name(name) == "consolidated";
  if (!name.empty()) return name.starts_with('/') || is_export ? telling_part(name) : name;
  const Json* model = description.find("model");
  const Json* architecture = model == nullptr ? nullptr : model->find("architecture");
  return architecture == nullptr ? "" : report::value_text(*architecture);
}

double written(const report::FileState& state) {
  return static_cast<double>(state.modified_ns) * 1e-9;
}

}  // namespace

const char* status_name(RunStatus status) {
  switch (status) {
    case RunStatus::kRunning:
      return "running";
    case RunStatus::kFinished:
      return "finished";
    case RunStatus::kStopped:
      return "stopped";
    case RunStatus::kFailed:
      return "failed";
    case RunStatus::kStale:
      break;
  }
  return "stale";
}

RunStatus run_status(report::RunState state, report::LockState lock, double seconds_since_written) {
  switch (state) {
    case report::RunState::kDone:
      return RunStatus::kFinished;
    case report::RunState::kPreempted:
    case report::RunState::kInterrupted:
      return RunStatus::kStopped;
    case report::RunState::kFailed:
      return RunStatus::kFailed;
    case report::RunState::kUnknown:
      break;
  }
  if (lock == report::LockState::kHeld) return RunStatus::kRunning;
  if (lock == report::LockState::kFree) return RunStatus::kStale;
  return seconds_since_written > kStaleSeconds ? RunStatus::kStale : RunStatus::kRunning;
}

SummaryReader::SummaryReader(const FoundRun& run, const std::string& root_name)
    : folder_(run.folder) {
  summary_.id = run.id;
  summary_.name = shown_text(run.id.empty() ? root_name : run.id);
  summary_.last.fill(std::nan(""));
}

void SummaryReader::read_steps() {
  report::RecordedRun run;
  run.events = turns_;
  if (summary_.max_steps) run.description["max_steps"] = *summary_.max_steps;
  const report::StepTable& steps = run.steps;
  const std::string path = path_join(folder_, "training.jsonl");
  report::add_steps(report::last_lines(path, training_.size, kTailBytes), run.steps);
  summary_.latest_losses = steps.of(report::Metric::kLoss);
  summary_.step.reset();
  summary_.last.fill(std::nan(""));
  summary_.step_seconds = std::nan("");
  summary_.mfu_percent = std::nan("");
  summary_.seconds_left = report::seconds_left(run);
  if (steps.size() == 0) return;
  summary_.step = static_cast<int64_t>(steps.step.back());
  // A loss that is not finite has made the other numbers so.
  const bool is_broken = !std::isfinite(steps.of(report::Metric::kLoss).back());
  for (size_t i = 0; i < report::kNumMetrics; ++i) {
    const std::vector<double>& values = steps.metrics[i];
    summary_.last[i] = values.back();
    const auto is_number = [](double value) { return !std::isnan(value); };
    summary_.is_recorded[i] = is_broken || std::ranges::any_of(values, is_number);
  }
  summary_.step_seconds = steps.seconds.back();
  const std::vector<double>* mfu = steps.extra("mfu");
  if (mfu != nullptr) summary_.mfu_percent = mfu->back();
}

void SummaryReader::read_events(bool is_same_file) {
  constexpr std::string_view kTurns[] = {"start",   "end",    "preempted",
                                         "failure", "resume", "rollback"};
  report::RecordedRun run;
  const std::string path = path_join(folder_, "events.jsonl");
  run.events.add(report::last_lines(path, events_.size, kEventTailBytes));
  const bool has_failed = run.state() == report::RunState::kFailed;
  summary_.detail = has_failed ? shown_text(report::state_text(run)) : "";
  std::optional<report::Alert> alert = report::latest_alert(run.events);
  // What was said before the end that is read still holds, unless the run has started anew since.
  const bool is_kept = is_same_file && run.events.count("start") == 0 && !alert;
  if (!is_kept) {
    if (alert) alert->text = shown_text(alert->text);
    summary_.alert = std::move(alert);
  }
  turns_ = {};
  for (const report::RunEvent& event : run.events) {
    if (std::ranges::find(kTurns, event.name) != std::end(kTurns)) turns_.add(event);
  }
}

void SummaryReader::read_description() {
  report::RecordedRun run;
  run.description = report::read_run_description(folder_);
  summary_.max_steps = run.max_steps();
  summary_.task = task_of(run.description);
  summary_.model = shown_text(model_of(run.description));
  summary_.format_note = shown_text(report::format_note(run.description));
}

const RunSummary& SummaryReader::update(double now) {
  const auto has_changed = [&](report::FileState& seen, const char* file) {
    const report::FileState state = report::look_at(path_join(folder_, file));
    return std::exchange(seen, state) != state;
  };
  if (has_changed(description_, "run.json")) read_description();
  const uint64_t events_file = events_.inode;
  if (has_changed(events_, "events.jsonl")) read_events(events_.inode == events_file);
  if (has_changed(training_, "training.jsonl")) read_steps();
  const report::RunState state = report::state_of(turns_);
  summary_.written_seconds =
      std::max({written(training_), written(events_), written(description_)});
  summary_.status = run_status(state, report::lock_state(folder_), now - summary_.written_seconds);
  if (summary_.status != RunStatus::kRunning) summary_.seconds_left = std::nan("");
  return summary_;
}

std::string shown_text(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    uint32_t code = 0;
    const size_t size = decode_utf8(text, at, code);
    const bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0);
    out += size == 0 || is_control ? "\xEF\xBF\xBD" : text.substr(at, size);
    at += std::max<size_t>(size, 1);
  }
  return out;
}

}  // namespace automodel::serve
