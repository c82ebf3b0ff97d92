#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/causal_lm.h"
#include "recipes/run/session_data.h"
#include "recipes/run/tool_call_evaluation.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// Runs the model in evaluation mode over the validation sets.
class Validation final {
 public:
  /// Called with each set's result before the next set is read.
  using Listener =
      std::function<void(const std::string& set, const training::TrainStep::Evaluation& result)>;

  /// `parts` are this rank's stages of the model; they and `train_step` outlive this object. A null
  /// `tool_calls` asks for none.
  Validation(std::vector<ValidationSet> sets, training::TrainStep& train_step,
             const std::vector<std::shared_ptr<models::CausalLM>>& parts,
             std::unique_ptr<ToolCallEvaluation> tool_calls);

  bool is_empty() const { return sets_.empty(); }
  const std::vector<ValidationSet>& sets() const { return sets_; }

  /// What the latest run() has measured of tool calls, before its sets; no members without.
  const Json& tool_call_metrics() const { return tool_call_metrics_; }

  /// Returns the loss of each set by name, after step `step`. Every rank calls it. A set that takes
  /// long is told of to `reporter`, and so is one without a label, whose loss is NaN.
  std::vector<std::pair<std::string, double>> run(int64_t step, const Listener& listener,
                                                  Reporter& reporter);

 private:
  /// Calls `body` while the units of all parts from `first` on that stay gathered after a forward
  /// (reshard_after_forward: false) are gathered once, instead of for every batch.
  void with_kept_units(size_t first, const std::function<void()>& body);
  std::vector<std::pair<std::string, double>> validate(int64_t step, const Listener& listener,
                                                       Reporter& reporter);

  std::vector<ValidationSet> sets_;
  training::TrainStep& train_step_;
  const std::vector<std::shared_ptr<models::CausalLM>>& parts_;
  std::unique_ptr<ToolCallEvaluation> tool_calls_;
  Json tool_call_metrics_ = Json::object();
};

}  // namespace automodel::recipes
