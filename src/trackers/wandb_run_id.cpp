#include "trackers/wandb_run_id.h"

#include <cmath>
#include <random>

#include "core/error.h"
#include "core/file.h"

namespace automodel::trackers {

namespace {

/// Eight letters and digits, as the wandb package's.
std::string new_id() {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device device;
  std::uniform_int_distribution<size_t> place(0, kLetters.size() - 1);
  std::string id(8, ' ');
  for (char& letter : id) letter = kLetters[place(device)];
  return id;
}

std::string kept_id(const WandbRun& run, Reporter& reporter) {
  const std::string file = path_join(run.folder, kWandbRunFile);
  if (!run.is_resumed || !path_exists(file)) return "";
  try {
    std::string id(trim(read_file(file)));
    const std::string problem = problem_of_run_id(id);
    if (problem.empty()) return id;
    reporter.warning(cat("W&B: ", file, ": ", problem, "; a new run is made"));
  } catch (const InputError& error) {
    reporter.warning(cat("W&B: ", error.what(), "; a new run is made"));
  }
  return "";
}

}  // namespace

WandbRunId wandb_run_id(const WandbRun& run, Reporter& reporter) {
  const auto resume = run.settings.resume;
  const std::string kept = resume == WandbResume::kNever ? "" : kept_id(run, reporter);
  if (run.settings.run_id.empty() && kept.empty() && resume == WandbResume::kMust) {
    throw UserError("wandb.resume: must needs the id of a run: set wandb.id, or WANDB_RUN_ID");
  }
  if (run.settings.run_id.empty()) return {kept.empty() ? new_id() : kept, !kept.empty()};
  return {run.settings.run_id, resume.has_value() || kept == run.settings.run_id};
}

void keep_wandb_run_id(const WandbRun& run, const std::string& id, Reporter& reporter) {
  try {
    create_directories(run.folder);
    write_file_atomic(path_join(run.folder, kWandbRunFile), id + "\n");
  } catch (const InputError& error) {
    reporter.warning(
        cat("W&B: a run that continues this one will not find its run: ", error.what()));
  }
}

std::vector<std::shared_ptr<const Record>> earlier_records(const WandbRun& run, int64_t last_step,
                                                           Reporter& reporter) {
  if (!run.is_resumed || !run.earlier) return {};
  try {
    return run.earlier(last_step);
  } catch (const InputError& error) {
    reporter.warning(cat("W&B: steps before this start may be missing: ", error.what()));
  }
  return {};
}

std::string wandb_run_name(const WandbRun& run) {
  return run.settings.name.empty() ? run.default_name : run.settings.name;
}

Json wandb_values(const Json& values) {
  if (values.is_double() && !std::isfinite(values.as_double())) return values.dump();
  if (values.is_array()) {
    Json list = Json::array();
    for (const Json& value : values.as_array()) list.push_back(wandb_values(value));
    return list;
  }
  if (!values.is_object()) return values;
  Json object = Json::object();
  for (const auto& [key, value] : values.as_object()) object[key] = wandb_values(value);
  return object;
}

int wandb_exit_code(RunEnd end) {
  switch (end) {
    case RunEnd::kFinished:
      return 0;
    case RunEnd::kFailed:
      return 1;
    case RunEnd::kStopped:
      return static_cast<int>(ExitCode::kPreempted);
  }
  return 1;
}

}  // namespace automodel::trackers
