#pragma once

#include <functional>

#include "comm/slow_work.h"
#include "core/reporter.h"
#include "nn/distillation_head.h"
#include "recipes/read/recipe.h"
#include "recipes/run/session_model.h"

namespace automodel::recipes {

/// The frozen model that a student learns from, on the student's ranks and by its strategy: in
/// evaluation mode, without gradients and optimizer, in no checkpoint. Every rank has one and calls
/// every function.
class Teacher final {
 public:
  /// Without weights. `recipe` distils.
  Teacher(const Recipe& recipe, const distributed::DeviceMesh& mesh, const EnginePlace& place);

  /// Reads its weights, or draws them.
  void load(comm::SlowWork& slow_work, Reporter& reporter);

  /// The loss that `student` computes through `head` of the batch, while this model's last hidden
  /// states and head are there for it to follow: neither model's logits are ever whole, and no
  /// weight is gathered twice.
  at::Tensor teach(nn::StudentLossHead& head, const tensor::Batch& batch, int64_t ignore_index,
                   const std::function<at::Tensor()>& student);

  /// A line about it.
  std::string describe() const;

 private:
  Recipe recipe_;
  SessionModel model_;
  std::shared_ptr<nn::TeacherLossHead> head_ = std::make_shared<nn::TeacherLossHead>();
};

}  // namespace automodel::recipes
