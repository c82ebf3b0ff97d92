#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/watch/slow_work.h"
#include "core/reporter.h"
#include "distributed/groups/device_mesh.h"
#include "kernels/loss/distillation.h"
#include "nn/distillation_head.h"
#include "recipes/build/build_engine.h"
#include "recipes/read/recipe.h"
#include "tensor/batch.h"

namespace automodel::recipes {

/// A batch for which the student's loss is about to be computed.
struct Lesson {
  const tensor::Batch& batch;  ///< whole, on the CPU
  /// This rank's part of the batch, on its device: in a pipeline every micro-batch, else one.
  const std::vector<tensor::Batch>& parts;
  int64_t ignore_index = -100;
};

/// The frozen model that a student learns from: in evaluation mode, without gradients and
/// optimizer, in no checkpoint. Every rank of the student has one and calls every function.
class Teacher {
 public:
  virtual ~Teacher() = default;

  /// Reads the teacher's weights, or draws random ones where the recipe asks for these.
  virtual void load(comm::SlowWork& slow_work, Reporter& reporter) = 0;

  /// The teacher's hidden states and head with which the student's loss of each part compares, for
  /// the tokens that the student's head computes. Empty on ranks that compute no loss.
  virtual std::vector<kernels::TeacherHead> look(const Lesson& lesson) = 0;

  /// The student's loss of a lesson with one part: gives `head` what it compares with, and calls
  /// `student`, which computes the loss through `head`.
  virtual at::Tensor teach(nn::StudentLossHead& head, const Lesson& lesson,
                           const std::function<at::Tensor()>& student);

  /// Tells the teacher that no lesson follows; one on other ranks ends then.
  virtual void dismiss() {}

  /// The teacher in one line, for the log.
  virtual std::string describe() const = 0;
};

/// Makes a teacher on the student's ranks, spread by the student's strategy, without weights.
/// `recipe` is one that distils, and outlives the teacher.
std::unique_ptr<Teacher> make_local_teacher(const Recipe& recipe,
                                            const distributed::DeviceMesh& mesh,
                                            const EnginePlace& place);

}  // namespace automodel::recipes
