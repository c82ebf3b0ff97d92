#include "recipes/run/frozen_model.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "recipes/run/initial_weights.h"

namespace automodel::recipes {

FrozenModel::FrozenModel(Recipe recipe, const distributed::DeviceMesh& mesh,
                         const EnginePlace& place)
    : recipe_(std::move(recipe)),
      model_(build_session_model(recipe_, mesh, place)),
      device_(place.device),
      head_(std::make_shared<nn::TeacherLossHead>(model_.parts.back()->loss_head().rows())) {
  model_.parts.back()->set_loss_head(head_);
  if (model_.stages) {
    stages_ = make_pipeline_pass(recipe_, *model_.pipeline, *model_.stages, mesh, place, {});
  }
}

void FrozenModel::load(comm::SlowWork& slow_work, Reporter& reporter) {
  load_initial_weights(recipe_, model_, /*is_resumed=*/false, slow_work, reporter);
}

void FrozenModel::keep_on_host(Reporter& reporter) {
  if (device_.is_cpu()) {
    reporter.warning(
        "offload_teacher_model moves nothing: this run computes on the CPU, whose memory the "
        "teacher is in already");
    return;
  }
  hosted_.emplace(model_.engine().parameters(), device_);
  hosted_->to_host();
}

void FrozenModel::compute(const tensor::Batch& part, const User& user) {
  bool is_users_turn = false;
  head_->tell([&](const kernels::TeacherHead& head) {
    is_users_turn = true;
    user(head);
    is_users_turn = false;
  });
  const at::NoGradGuard frozen;
  model_.engine().begin_micro_batch(true);
  try {
    model_.model().loss(part, 1.0, recipe_.loss.ignore_index);
  } catch (const InputError& error) {
    if (is_users_turn) throw;
    throw InputError(cat("the teacher: ", error.what()));
  }
  model_.engine().end_micro_batch();
}

std::vector<kernels::TeacherHead> FrozenModel::heads_of(const tensor::Batch& whole,
                                                        const std::vector<tensor::Batch>& parts) {
  if (hosted_) hosted_->to_device();
  std::vector<kernels::TeacherHead> heads;
  const auto keep = [&](const kernels::TeacherHead& head) {
    heads.push_back({head.hidden, kept(head.weight), head.options});
  };
  if (stages_ == nullptr) {
    compute(parts.at(0), keep);
  } else {
    head_->tell(keep);
    stages_->evaluate(whole, 0);
  }
  if (hosted_) hosted_->to_host();
  return heads;
}

at::Tensor FrozenModel::kept(const at::Tensor& weight) {
  const bool stays = !hosted_ && model_.engine().held_part().count == 1;
  if (stays) return weight;
  if (!kept_weight_.defined()) kept_weight_ = weight.clone();
  return kept_weight_;
}

std::string FrozenModel::describe() const {
  const models::ModelDims dims = model_.model().dims();
  return cat("teacher: ", model_.model().architecture(), ", ", dims.num_layers, " layers, hidden ",
             dims.hidden_size, ", ", model_.engine().num_parameters(), " parameters (frozen)");
}

}  // namespace automodel::recipes
