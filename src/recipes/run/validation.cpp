#include "recipes/run/validation.h"

#include <atomic>
#include <cmath>

#include "core/long_work.h"
#include "core/text.h"
#include "distributed/fsdp/fully_shard.h"

namespace automodel::recipes {

namespace {

std::string batches_text(int64_t num_done, std::optional<int64_t> size) {
  return cat(num_done, size ? cat(" of ", *size) : "", " batches");
}

}  // namespace

Validation::Validation(std::vector<ValidationSet> sets, training::TrainStep& train_step,
                       const std::vector<std::shared_ptr<models::CausalLM>>& parts,
                       std::unique_ptr<ToolCallEvaluation> tool_calls)
    : sets_(std::move(sets)),
      train_step_(train_step),
      parts_(parts),
      tool_calls_(std::move(tool_calls)) {}

std::vector<std::pair<std::string, double>> Validation::run(int64_t step, const Listener& listener,
                                                            Reporter& reporter) {
  std::vector<std::pair<std::string, double>> losses;
  with_kept_units(0, [&] { losses = validate(step, listener, reporter); });
  return losses;
}

void Validation::with_kept_units(size_t first, const std::function<void()>& body) {
  if (first == parts_.size()) return body();
  const auto rest = [&] { with_kept_units(first + 1, body); };
  models::CausalLM& part = *parts_[first];
  if (!distributed::all_keep_after_forward(part)) return rest();
  distributed::unshard_fsdp2_model(part, rest);
}

std::vector<std::pair<std::string, double>> Validation::validate(int64_t step,
                                                                 const Listener& listener,
                                                                 Reporter& reporter) {
  std::vector<std::pair<std::string, double>> losses;
  for (const auto& part : parts_) part->eval();
  if (tool_calls_) {
    train_step_.drop_recorded_step();
    tool_call_metrics_ = tool_calls_->run(reporter);
  }
  for (ValidationSet& set : sets_) {
    set.stream->rewind();
    std::atomic<int64_t> num_done = 0;
    const LongWork told(&reporter, cat("validating on ", set.name),
                        [&] { return batches_text(num_done, set.stream->size()); });
    const auto next_batch = [&](tensor::Batch& batch) {
      auto next = set.stream->next();
      if (next) batch = std::move(*next);
      if (next) ++num_done;
      return next.has_value();
    };
    const auto evaluation = train_step_.evaluate(next_batch, step);
    const bool has_labels = evaluation.num_label_tokens > 0;
    losses.emplace_back(set.name, has_labels ? evaluation.loss : std::nan(""));
    if (!has_labels) {
      reporter.warning(cat("validation set '", set.name, "' has no token to predict"));
    }
    listener(set.name, evaluation);
  }
  for (const auto& part : parts_) part->train();
  return losses;
}

}  // namespace automodel::recipes
