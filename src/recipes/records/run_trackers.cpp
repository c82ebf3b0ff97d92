#include "recipes/records/run_trackers.h"

#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "recipes/records/logged_records.h"
#include "trackers/mlflow.h"
#include "trackers/recipe_values.h"
#include "trackers/wandb.h"

namespace automodel::recipes {

namespace {

using trackers::BackgroundTracker;
using trackers::LeavingReporter;
using trackers::RunEnd;
using trackers::Tally;

/// How long the end of a run waits for its trackers.
double patience_seconds(RunEnd how) {
  switch (how) {
    case RunEnd::kFinished:
      return 30;
    case RunEnd::kStopped:
      return 10;  // who sent the signal may send another
    case RunEnd::kFailed:
      return 1;  // a launcher ends the ranks of a failed run soon
  }
  return 0;
}

std::unique_ptr<BackgroundTracker> start_tensorboard(const TrackedRun& run, Reporter& reporter) {
  const std::string& root = run.recipe.checkpoint.checkpoint_dir;
  trackers::TensorBoardRun options;
  options.folder = run.recipe.tensorboard->log_dir.value_or(path_join(root, "tensorboard"));
  options.first_step = run.first_step;
  options.recipe_text = run.recipe_text;
  auto tracker = trackers::make_tensorboard(options);
  reporter.info(cat("TensorBoard: event files in ", options.folder));
  return std::make_unique<BackgroundTracker>(std::move(tracker), trackers::QueueOptions{},
                                             std::make_shared<LeavingReporter>(reporter));
}

std::unique_ptr<BackgroundTracker> start_mlflow(const TrackedRun& run, Reporter& reporter) {
  trackers::MlflowRun options;
  options.config = *run.recipe.mlflow;
  options.settings =
      trackers::MlflowSettings::from_environment(trackers::process_environment(), options.config);
  options.folder = run.recipe.checkpoint.checkpoint_dir;
  options.is_resumed = run.is_resumed;
  options.parameters =
      trackers::mlflow_parameters(run.record.at("values"), options.config.flatten_depth);
  options.source = run.record.get("recipe", "");
  trackers::QueueOptions queue;
  queue.pause_seconds = 1;  // a request for the steps of a second
  auto said = std::make_shared<LeavingReporter>(reporter);
  return std::make_unique<BackgroundTracker>(trackers::make_mlflow(std::move(options), said), queue,
                                             said);
}

/// The last two parts of a model's name or path: `Qwen_Qwen3-0.6B`.
std::string name_of_model(const std::string& source) {
  std::vector<std::string> parts;
  for (std::string& part : split(source, '/')) {
    if (!part.empty()) parts.push_back(std::move(part));
  }
  const auto first = parts.size() > 2 ? parts.end() - 2 : parts.begin();
  return join({first, parts.end()}, "_");
}

std::unique_ptr<BackgroundTracker> start_wandb(const TrackedRun& run, Reporter& reporter) {
  trackers::WandbRun options;
  options.settings =
      trackers::WandbSettings::from_environment(trackers::process_environment(), *run.recipe.wandb);
  options.folder = run.recipe.checkpoint.checkpoint_dir;
  options.is_resumed = run.is_resumed;
  options.default_name = name_of_model(run.recipe.model.source);
  options.values = trackers::nested_values(run.record.at("values"));
  options.source = run.record.get("recipe", "");
  const LoggedSteps wanted{.validation_sets = run.validation_sets,
                           .first_step = run.first_step,
                           .every_steps = run.recipe.step_scheduler.log_remote_every_steps};
  options.earlier = [folder = options.folder, wanted](int64_t last_step) {
    LoggedSteps steps = wanted;
    steps.last_step = last_step;
    return logged_records(folder, steps);
  };
  auto said = std::make_shared<LeavingReporter>(reporter);
  if (options.settings.mode == trackers::WandbMode::kOffline) {
    return std::make_unique<BackgroundTracker>(trackers::make_offline_wandb(options, said),
                                               trackers::QueueOptions{}, said);
  }
  trackers::QueueOptions queue;
  queue.pause_seconds = 5;  // the server counts requests
  return std::make_unique<BackgroundTracker>(trackers::make_wandb(std::move(options), said), queue,
                                             said);
}

/// What went wrong with a tracker in all; "" when nothing did.
std::string complaint(const Tally& tally) {
  std::string text;
  if (!tally.has_started) {
    text = "knows nothing of this run";
  } else if (tally.num_lost > 0) {
    text = cat("lacks ", tally.num_lost, " of ", tally.num_sent + tally.num_lost, " records");
  }
  if (tally.has_started && !tally.has_finished) {
    text += cat(text.empty() ? "" : ", and ", "has not heard that the run has ended");
  }
  if (text.empty()) return "";
  return cat(tally.tracker, " ", text, tally.problem.empty() ? "" : ": ", tally.problem);
}

}  // namespace

void RunTrackers::start(const TrackedRun& run) {
  if (!is_tracking_) return;
  if (run.recipe.tensorboard) {
    running_.push_back({start_tensorboard(run, reporter_), 1, /*shows_histograms=*/true});
  }
  const int64_t every_steps = run.recipe.step_scheduler.log_remote_every_steps;
  if (run.recipe.mlflow) running_.push_back({start_mlflow(run, reporter_), every_steps});
  if (run.recipe.wandb) running_.push_back({start_wandb(run, reporter_), every_steps});
}

void RunTrackers::train(const Json& record) {
  if (running_.empty()) return;
  const auto made = std::make_shared<const trackers::Record>(trackers::record_of(record));
  for (const Running& one : running_) {
    if (made->step % one.every_steps == 0) one.tracker->add(made);
  }
}

void RunTrackers::validation(const std::string& set, const Json& record) {
  if (running_.empty()) return;
  const auto made = std::make_shared<const trackers::Record>(trackers::record_of(record, set));
  for (const Running& one : running_) one.tracker->add(made);
}

void RunTrackers::gradients(int64_t step, const std::vector<training::LayerHistogram>& layers) {
  if (running_.empty()) return;
  Json of_step = Json::object();
  of_step["step"] = step;
  trackers::Record record = trackers::record_of(of_step);
  for (const training::LayerHistogram& layer : layers) {
    record.histograms.emplace_back(cat("gradients/", layer.layer), layer.histogram);
  }
  const auto made = std::make_shared<const trackers::Record>(std::move(record));
  for (const Running& one : running_) {
    if (one.shows_histograms) one.tracker->add(made);
  }
}

void RunTrackers::end(RunEnd how) {
  for (const Running& one : std::exchange(running_, {})) {
    const Tally tally = one.tracker->end(how, patience_seconds(how));
    if (const std::string text = complaint(tally); !text.empty()) reporter_.warning(text);
    Json fields = Json::object();
    fields["tracker"] = tally.tracker;
    fields["sent"] = tally.num_sent;
    fields["lost"] = tally.num_lost;
    if (!tally.problem.empty()) fields["problem"] = tally.problem;
    events_.add("tracker", std::move(fields));
  }
}

}  // namespace automodel::recipes
