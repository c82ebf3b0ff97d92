#include "recipes/records/run_advice.h"

#include <ATen/core/Tensor.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <numeric>

#include "checkpoint/lifecycle.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"

namespace automodel::recipes {

namespace {

/// The bytes of the files in a folder; nullopt where they cannot be counted.
std::optional<int64_t> bytes_below(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  int64_t bytes = 0;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->is_symlink(error) || !entry->is_regular_file(error)) continue;
    bytes += static_cast<int64_t>(entry->file_size(error));
  }
  return error ? std::nullopt : std::optional(bytes);
}

/// The checkpoints that lie where this one does, itself among them.
int64_t num_checkpoints_beside(const std::string& checkpoint) {
  namespace fs = std::filesystem;
  std::error_code error;
  int64_t count = 0;
  for (fs::directory_iterator entry(parent_path(checkpoint), error), end; !error && entry != end;
       entry.increment(error)) {
    if (checkpoint::CheckpointName::parse(entry->path().filename().string())) ++count;
  }
  return count;
}

/// What a checkpoint's folder takes of its disk, and what is left there; nullopt where that cannot
/// be found out.
std::optional<loggers::DiskFacts> look_at_disk(const std::string& folder, int64_t step,
                                               const SaveSchedule& plan) {
  struct statvfs disk {};
  const std::optional<int64_t> bytes = bytes_below(folder);
  const int64_t num_to_come = num_saves_to_come(plan, step, num_checkpoints_beside(folder));
  if (!bytes || ::statvfs(folder.c_str(), &disk) != 0) return std::nullopt;
  const auto free_bytes =
      static_cast<int64_t>(uint64_t{disk.f_bavail} * static_cast<uint64_t>(disk.f_frsize));
  return loggers::DiskFacts{parent_path(folder), free_bytes, *bytes, num_to_come};
}

std::vector<loggers::ExpertFacts> facts_of(const std::vector<moe::LayerLoad>& loads,
                                           int64_t num_steps) {
  std::vector<loggers::ExpertFacts> facts;
  for (const moe::LayerLoad& load : loads) {
    const at::Tensor counts = load.load.contiguous();
    const float* first = counts.const_data_ptr<float>();
    facts.push_back({load.layer, {first, first + counts.numel()}, num_steps});
  }
  return facts;
}

}  // namespace

void RunAdvice::after_step(const loggers::StepFacts& facts) {
  if (!is_watching_) return;
  const bool is_known =
      disk_.valid() && disk_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  if (is_known) tell_of_disk();
  for (const loggers::Advice& advice : adviser_.after_step(facts)) say(advice, facts.step);
}

void RunAdvice::after_routing(int64_t step, const std::vector<moe::LayerLoad>& loads,
                              int64_t num_steps) {
  if (!is_watching_) return;
  const auto facts = facts_of(loads, num_steps);
  for (const loggers::Advice& advice : adviser_.after_routing(step, facts)) say(advice, step);
}

void RunAdvice::after_times(const loggers::RankTimes& times) {
  if (!is_watching_) return;
  if (const auto advice = adviser_.after_times(times)) say(*advice, times.step);
}

void RunAdvice::after_save(const std::string& folder, int64_t step, const SaveSchedule& plan) {
  if (!is_watching_) return;
  finish();
  saved_step_ = step;
  disk_ = std::async(std::launch::async,
                     [folder, step, plan] { return look_at_disk(folder, step, plan); });
}

void RunAdvice::finish() {
  if (disk_.valid()) tell_of_disk();
}

void RunAdvice::tell_of_disk() {
  const std::optional<loggers::DiskFacts> facts = disk_.get();
  const auto advice = facts ? adviser_.after_save(*facts) : std::nullopt;
  if (advice) say(*advice, saved_step_);
}

void RunAdvice::say(const loggers::Advice& advice, int64_t step) {
  advice.is_warning ? console_.warning(cat("advice: ", advice.text))
                    : console_.info(cat("advice: ", advice.text));
  Json fields = Json::object();
  fields["step"] = step;
  fields["kind"] = advice.kind;
  fields["text"] = advice.text;
  events_.add("advice", std::move(fields));
}

int64_t num_saves_to_come(const SaveSchedule& plan, int64_t step, int64_t num_kept) {
  const int64_t done = step + 1;
  const auto multiples = [&](int64_t of) { return plan.max_steps / of - done / of; };
  int64_t to_come = multiples(plan.interval);
  bool is_last_one = plan.max_steps % plan.interval == 0;
  if (plan.epoch_length) {
    to_come +=
        multiples(*plan.epoch_length) - multiples(std::lcm(plan.interval, *plan.epoch_length));
    is_last_one = is_last_one || plan.max_steps % *plan.epoch_length == 0;
  }
  if (!is_last_one && done < plan.max_steps) ++to_come;
  to_come = std::max<int64_t>(to_come, 0);
  if (!plan.most_kept) return to_come;
  return std::min(to_come, std::max<int64_t>(*plan.most_kept - num_kept, 0) + 1);
}

}  // namespace automodel::recipes
