#include "distributed/engine/split_engine.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <numeric>

#include "comm/groups/sums.h"
#include "kernels/optimizer/optimizer_step.h"

namespace automodel::distributed {

using tensor::FlatSegment;
using tensor::FlatShard;

namespace {

/// Whether every tensor-parallel rank holds the whole tensor (sharding over data-parallel ranks
/// aside).
bool is_whole(const FlatSegment& segment) {
  return segment.spec.box_shape == segment.spec.global_shape;
}

}  // namespace

SplitEngine::SplitEngine(std::unique_ptr<Engine> inner, const comm::ProcessGroup& tp_group,
                         const SplitModule& split)
    : Engine(inner->group()), inner_(std::move(inner)), tp_group_(tp_group), summed_(split.summed) {
  parameters_ = inner_->parameters();
  trained_ = inner_->trained();
  gradients_ = inner_->gradients();
  own_units_ = inner_->own_units();
  num_parameters_ = split.num_parameters;
  num_trained_parameters_ = split.num_trained_parameters;
}

HeldPart SplitEngine::held_part() const {
  HeldPart part = inner_->held_part();
  part.index = part.index * tp_group_.size() + tp_group_.rank();
  part.count *= tp_group_.size();
  part.saves_whole_tensors = tp_group_.rank() == 0;
  return part;
}

void SplitEngine::reduce_gradients() {
  inner_->reduce_gradients();
  // All ranks of the group have the same layouts, so also the same pieces in the same order.
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> views;
  std::vector<at::Tensor> sent;
  for (const FlatShard& shard : gradients_) {
    if (own_units_.contains(shard.unit)) continue;
    for (const FlatSegment& segment : shard.segments) {
      if (!is_whole(segment)) continue;
      const double share = summed_.contains(segment.fqn) ? 1.0 : 1.0 / tp_group_.size();
      views.push_back(shard.view(segment));
      sent.push_back(views.back().to(at::kFloat).mul(share));
    }
  }
  if (views.empty()) return;
  const at::Tensor all = at::cat(sent);
  tp_group_.all_reduce(all, comm::ReduceOp::kSum);
  int64_t begin = 0;
  for (at::Tensor& view : views) {
    view.copy_(all.narrow(0, begin, view.numel()));
    begin += view.numel();
  }
}

std::vector<std::string> SplitEngine::non_finite(ValuesOf values) const {
  return union_over(tp_group_, inner_->non_finite(values));
}

double SplitEngine::gradient_norm() const {
  // An element that n ranks hold is counted on each of them, as 1/n.
  const double share = 1.0 / inner_->held_part().num_holders;
  std::vector<at::Tensor> views;
  std::vector<double> shares;
  for (const FlatShard& shard : gradients_) {
    const bool is_own = own_units_.contains(shard.unit);
    for (const FlatSegment& segment : shard.segments) {
      views.push_back(shard.view(segment));
      shares.push_back(is_own ? 1.0 : is_whole(segment) ? share / tp_group_.size() : share);
    }
  }
  const std::vector<double> squares = kernels::sums_of_squares(views);
  const double sum = std::inner_product(squares.begin(), squares.end(), shares.begin(), 0.0);
  return std::sqrt(comm::sum_over(tp_group_, comm::sum_over(group_, sum)));
}

std::vector<FlatShard> saved_shards(const std::vector<FlatShard>& shards, const Engine& engine) {
  const HeldPart part = engine.held_part();
  std::vector<FlatShard> saved = shards;
  for (FlatShard& shard : saved) {
    if (engine.own_units().contains(shard.unit)) continue;
    if (!part.is_saved_here) {
      shard.segments.clear();
    } else if (!part.saves_whole_tensors) {
      std::erase_if(shard.segments, is_whole);
    }
  }
  return saved;
}

}  // namespace automodel::distributed
