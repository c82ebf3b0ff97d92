#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/watch/slow_work.h"
#include "core/reporter.h"
#include "kernels/loss/distillation.h"
#include "nn/distillation_head.h"
#include "recipes/read/recipe.h"
#include "recipes/run/hosted_parameters.h"
#include "recipes/run/session_model.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// A teacher's model over a mesh. It runs forwards only; students compare themselves with its last
/// hidden states and its head. Every rank of the mesh calls every function.
class FrozenModel final {
 public:
  /// Builds the model without weights, which load() gives it. `recipe` is a teacher_recipe().
  FrozenModel(Recipe recipe, const distributed::DeviceMesh& mesh, const EnginePlace& place);

  /// Reads the model's weights, or draws random ones where the recipe asks for these.
  void load(comm::SlowWork& slow_work, Reporter& reporter);
  /// From now on the parameters lie in host memory, except while heads_of() runs. Call it after
  /// load().
  void keep_on_host(Reporter& reporter);

  using User = std::function<void(const kernels::TeacherHead& head)>;
  /// Computes this rank's part of a batch, and calls `user` while the head's weight is gathered.
  /// Not for a model in pipeline stages.
  void compute(const tensor::Batch& part, const User& user);

  /// The teacher's hidden states and head for each part of a batch. In a pipeline the parts are the
  /// micro-batches, and ranks of other stages than the last get none; else there is one part. The
  /// weight is a copy unless it stays on this rank when the forward has ended.
  std::vector<kernels::TeacherHead> heads_of(const tensor::Batch& whole,
                                             const std::vector<tensor::Batch>& parts);

  /// The model's loss head. On ranks of the last stage it tells which rows of the vocabulary the
  /// rank holds.
  const nn::LossHead& head() const { return *head_; }
  const SessionModel& model() const { return model_; }
  /// The teacher in one line, for the log.
  std::string describe() const;

 private:
  /// The head's weight itself, or a copy where its memory is freed when the forward has ended.
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
