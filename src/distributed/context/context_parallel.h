#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "comm/groups/process_group.h"
#include "distributed/context/context_split.h"
#include "distributed/settings/distributed_config.h"
#include "nn/attention_core.h"

namespace automodel::distributed {

/// Attention over tokens that are split over `group` as split_batch() splits them. Queries stay on
/// their rank; keys and values are sent to the other ranks; results over several ranks' keys are
/// merged by their log-sum-exps in float32. Blocks that causality or the window masks entirely are
/// not computed. Backward is explicit: keys and values are sent again, and their gradients are sent
/// back to their owners. attend() takes options of a split batch (visible_keys, if it has padding
/// or documents); it throws UnsupportedError for dropout. Every rank of the group calls it in the
/// same order.
std::shared_ptr<nn::AttentionCore> make_context_parallel_core(
    const comm::ProcessGroup& group, CpRotateMethod method,
    SequenceLayout layout = SequenceLayout::kHeadTail);

/// Splits batches and per-token tensors over context-parallel ranks, and joins them again. With a
/// group of one everything is returned unchanged.
class ContextParallelSharder final {
 public:
  ContextParallelSharder(comm::ProcessGroup group, int64_t ignore_index,
                         SequenceLayout layout = SequenceLayout::kHeadTail)
      : group_(std::move(group)), ignore_index_(ignore_index), layout_(layout) {}

  SequenceShare share() const { return {group_.rank(), group_.size(), layout_}; }

  /// This rank's share of a batch; every rank of the group passes the same batch.
  tensor::Batch shard(const tensor::Batch& batch) const;
  /// This rank's share of x [B, S, ...], padded with `fill`.
  at::Tensor shard_token_tensor(const at::Tensor& x, double fill) const;
  /// Joins all ranks' x [B, s, ...] and cuts them to `length` tokens. Differentiable; the ranks'
  /// gradients are summed, so a loss that every rank computes counts cp times. Collective.
  at::Tensor gather_token_tensor(const at::Tensor& x, int64_t length) const;

 private:
  comm::ProcessGroup group_;
  int64_t ignore_index_;
  SequenceLayout layout_;
};

}  // namespace automodel::distributed
