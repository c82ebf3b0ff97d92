#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/slow_work.h"
#include "core/reporter.h"
#include "kernels/distillation.h"
#include "nn/distillation_head.h"
#include "recipes/read/recipe.h"
#include "recipes/run/hosted_parameters.h"
#include "recipes/run/session_model.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// A teacher's model over a mesh: its forwards, whose last hidden states and head others compare
/// themselves with. Every rank of the mesh calls every function.
class FrozenModel final {
 public:
  /// Without weights. `recipe` is a teacher's.
  FrozenModel(Recipe recipe, const distributed::DeviceMesh& mesh, const EnginePlace& place);

  /// Reads its weights, or draws them.
  void load(comm::SlowWork& slow_work, Reporter& reporter);
  /// From now on its parameters lie in host memory, but for heads_of(). Call it after load().
  void keep_on_host(Reporter& reporter);

  using User = std::function<void(const kernels::TeacherHead& head)>;
  /// Computes this rank's part of a batch, and calls `user` while the head's weight is there. Not
  /// of a pipeline.
  void compute(const tensor::Batch& part, const User& user);

  /// The heads of a batch's parts: of a pipeline those of its micro-batches on the last stage, none
  /// elsewhere; else that of the one part. The weight is a copy where the engine gathers it.
  std::vector<kernels::TeacherHead> heads_of(const tensor::Batch& whole,
                                             const std::vector<tensor::Batch>& parts);

  /// Has the head's rows of the vocabulary, on the ranks of the last stage.
  const nn::LossHead& head() const { return *head_; }
  const SessionModel& model() const { return model_; }
  /// A line about it.
  std::string describe() const;

 private:
  /// A weight that stays when the forward has ended.
  at::Tensor kept(const at::Tensor& weight);

  Recipe recipe_;
  SessionModel model_;
  at::Device device_;
  std::shared_ptr<nn::TeacherLossHead> head_;
  std::unique_ptr<training::BatchPass> stages_;  // of a pipeline
  std::optional<HostedParameters> hosted_;
  at::Tensor kept_weight_;
};

}  // namespace automodel::recipes
