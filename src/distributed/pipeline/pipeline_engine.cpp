#include "distributed/pipeline/pipeline_engine.h"

#include <ATen/ops/tensor.h>

#include <cmath>

#include "comm/groups/sums.h"
#include "core/error.h"

namespace automodel::distributed {

PipelineEngine::PipelineEngine(std::vector<std::unique_ptr<Engine>> stages,
                               comm::ProcessGroup pp_group, int64_t num_repeated)
    : Engine(stages.at(0)->group()), stages_(std::move(stages)), pp_group_(std::move(pp_group)) {
  for (const std::unique_ptr<Engine>& stage : stages_) {
    const auto add = [](std::vector<tensor::FlatShard>& to,
                        const std::vector<tensor::FlatShard>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    add(parameters_, stage->parameters());
    add(trained_, stage->trained());
    add(gradients_, stage->gradients());
    own_units_.insert(stage->own_units().begin(), stage->own_units().end());
    num_parameters_ += stage->num_parameters();
    num_trained_parameters_ += stage->num_trained_parameters();
  }
  num_parameters_ -= num_repeated;
  at::Tensor sums =
      at::tensor({num_parameters_, num_trained_parameters_}, at::TensorOptions().dtype(at::kLong));
  pp_group_.all_reduce(sums, comm::ReduceOp::kSum);
  num_parameters_ = sums.data_ptr<int64_t>()[0];
  num_trained_parameters_ = sums.data_ptr<int64_t>()[1];
}

HeldPart PipelineEngine::held_part() const {
  HeldPart part = stages_[0]->held_part();
  part.index += pp_group_.rank() * part.count;
  part.count *= pp_group_.size();
  return part;
}

void PipelineEngine::begin_micro_batch(bool is_last) {
  for (const auto& stage : stages_) stage->begin_micro_batch(is_last);
}

void PipelineEngine::end_micro_batch() {
  for (const auto& stage : stages_) stage->end_micro_batch();
}

void PipelineEngine::parameters_changed() {
  for (const auto& stage : stages_) stage->parameters_changed();
}

void PipelineEngine::zero_gradients() {
  for (const auto& stage : stages_) stage->zero_gradients();
}

void PipelineEngine::reduce_gradients() {
  for (const auto& stage : stages_) stage->reduce_gradients();
}

double PipelineEngine::gradient_norm() const {
  double squares = 0;
  for (const auto& stage : stages_) {
    const double norm = stage->gradient_norm();
    squares += norm * norm;
  }
  return std::sqrt(comm::sum_over(pp_group_, squares));
}

std::vector<std::string> PipelineEngine::non_finite(ValuesOf values) const {
  std::vector<std::string> names;
  for (const auto& stage : stages_) {
    const std::vector<std::string> of_stage = stage->non_finite(values);
    names.insert(names.end(), of_stage.begin(), of_stage.end());
  }
  return union_over(pp_group_, names);
}

}  // namespace automodel::distributed
