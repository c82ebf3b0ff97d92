#include "recipes/run/teacher.h"

#include <ATen/core/grad_mode.h>

#include "core/error.h"
#include "core/text.h"
#include "recipes/read/read_distillation.h"
#include "recipes/run/initial_weights.h"

namespace automodel::recipes {

Teacher::Teacher(const Recipe& recipe, const distributed::DeviceMesh& mesh,
                 const EnginePlace& place)
    : recipe_(teacher_recipe(recipe)), model_(build_frozen_model(recipe_, mesh, place)) {
  model_.model().set_loss_head(head_);
}

void Teacher::load(comm::SlowWork& slow_work, Reporter& reporter) {
  load_initial_weights(recipe_, model_, /*is_resumed=*/false, slow_work, reporter);
}

at::Tensor Teacher::teach(nn::StudentLossHead& head, const tensor::Batch& batch,
                          int64_t ignore_index, const std::function<at::Tensor()>& student) {
  const bool has_gradients = at::GradMode::is_enabled();
  at::Tensor loss;
  bool is_students_turn = false;
  head_->tell([&](const kernels::TeacherHead& teacher) {
    is_students_turn = true;
    const at::AutoGradMode mode(has_gradients);
    head.follow(teacher);
    loss = student();
    is_students_turn = false;
  });
  const at::NoGradGuard frozen;
  model_.engine().begin_micro_batch(true);
  try {
    model_.model().loss(batch, 1.0, ignore_index);
  } catch (const InputError& error) {
    if (is_students_turn) throw;
    throw InputError(cat("the teacher: ", error.what()));
  }
  model_.engine().end_micro_batch();
  return loss;
}

std::string Teacher::describe() const {
  const models::ModelDims dims = model_.model().dims();
  return cat("teacher: ", model_.model().architecture(), ", ", dims.num_layers, " layers, hidden ",
             dims.hidden_size, ", ", model_.engine().num_parameters(), " parameters (frozen)");
}

}  // namespace automodel::recipes
