#include "recipes/run/validation.h"

namespace automodel::recipes {

Validation::Validation(std::vector<ValidationSet> sets, training::TrainStep& train_step,
                       const std::vector<std::shared_ptr<models::CausalLM>>& parts)
    : sets_(std::move(sets)), train_step_(train_step), parts_(parts) {}

std::vector<std::pair<std::string, double>> Validation::run(int64_t step,
                                                            const Listener& listener) {
  std::vector<std::pair<std::string, double>> losses;
  for (const auto& part : parts_) part->eval();
  for (ValidationSet& set : sets_) {
    set.stream->rewind();
    const auto next_batch = [&set](tensor::Batch& batch) {
      auto next = set.stream->next();
      if (next) batch = std::move(*next);
      return next.has_value();
    };
    const auto evaluation = train_step_.evaluate(next_batch, step);
    losses.emplace_back(set.name, evaluation.loss);
    listener(set.name, evaluation);
  }
  for (const auto& part : parts_) part->train();
  return losses;
}

}  // namespace automodel::recipes
