#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/slow_work.h"
#include "core/reporter.h"
#include "distributed/groups/device_mesh.h"
#include "kernels/distillation.h"
#include "nn/distillation_head.h"
#include "recipes/build/build_engine.h"
#include "recipes/read/recipe.h"
#include "tensor/batch.h"

namespace automodel::recipes {

/// A batch that a student is about to be scored on.
struct Lesson {
  const tensor::Batch& batch;  ///< whole, on the CPU
  /// This rank's part of it, on its device: of a pipeline every micro-batch, else one.
  const std::vector<tensor::Batch>& parts;
  int64_t ignore_index = -100;
};

/// The frozen model that a student learns from: in evaluation mode, without gradients and
/// optimizer, in no checkpoint. Every rank of the student has one and calls every function.
class Teacher {
 public:
  virtual ~Teacher() = default;

  /// Reads its weights, or draws them.
  virtual void load(comm::SlowWork& slow_work, Reporter& reporter) = 0;

  /// What the student follows in the loss of each part, for the tokens that the student's head
  /// gets; empty on ranks without losses.
  virtual std::vector<kernels::TeacherHead> look(const Lesson& lesson) = 0;

  /// The loss that `student` computes of the one part through `head`, which follows this model.
  virtual at::Tensor teach(nn::StudentLossHead& head, const Lesson& lesson,
                           const std::function<at::Tensor()>& student);

  /// Says that nothing will be asked any more.
  virtual void dismiss() {}

  /// A line about it.
  virtual std::string describe() const = 0;
};

/// A teacher on the student's ranks, by the student's strategy; without weights. `recipe` distils
/// and outlives it.
std::unique_ptr<Teacher> make_local_teacher(const Recipe& recipe,
                                            const distributed::DeviceMesh& mesh,
                                            const EnginePlace& place);

}  // namespace automodel::recipes
