#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/hf_folder.h"
#include "comm/process_group.h"
#include "core/reporter.h"
#include "distributed/engine.h"
#include "models/causal_lm.h"
#include "recipes/recipe.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// Everything of a session that a checkpoint holds. References to the session's own parts.
struct SessionState {
  distributed::Engine& engine;
  optim::Optimizer& optimizer;
  training::TrainStep& train_step;
  training::StepScheduler& scheduler;
  datasets::BatchStream& stream;
  models::CausalLM& model;
};

/// What is known at the moment of a save.
struct SaveRequest {
  Json position;  ///< of the data, behind the step that was just done
  double train_loss = 0;
  std::vector<std::pair<std::string, double>> validation_losses;
  bool is_final = false;  ///< the run's last checkpoint
};

/// Saves and restores sessions in upstream's layout. All ranks call save() and restore() together.
class SessionCheckpoint final {
 public:
  SessionCheckpoint(const Recipe& recipe, comm::ProcessGroup group, Reporter& reporter,
                    std::string resolved_recipe);

  /// Continues from the checkpoint that restore_from or the newest good one means. False when there
  /// is none and the run starts afresh.
  bool restore(const SessionState& state);

  void save(const SessionState& state, const SaveRequest& request);

 private:
  void write_rank_files(const SessionState& state, const std::string& folder) const;
  void write_shared_files(const SessionState& state, const SaveRequest& request,
                          const std::string& folder) const;
  void export_model(const SessionState& state, const std::string& folder) const;
  void load(const SessionState& state, const std::string& folder) const;

  const Recipe& recipe_;
  comm::ProcessGroup group_;
  Reporter& reporter_;
  std::string resolved_recipe_;
};

/// dtype of the first floating tensor of a Hugging Face folder, as `torch_dtype: auto` means.
std::optional<at::ScalarType> checkpoint_dtype(const std::string& folder);

/// How a model's folders are read: what it keeps as it came, and what stands in for what.
checkpoint::LoadOptions load_options(const models::CausalLM& model);

/// Reads a Hugging Face folder's weights into the parameters, but for tensors whose names begin
/// with one of `left_out`; each rank reads what it holds.
void load_base_weights(const std::string& folder, const models::CausalLM& model,
                       const std::vector<tensor::FlatShard>& parameters,
                       const std::vector<std::string>& left_out, Reporter& reporter);

}  // namespace automodel::recipes
