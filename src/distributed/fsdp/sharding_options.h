#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "core/reporter.h"
#include "distributed/fsdp/gradient_check.h"
#include "distributed/groups/sharding_groups.h"
#include "distributed/settings/distributed_config.h"

namespace automodel::distributed {

/// Whether a rank holds its part of something or all of it.
enum class Placement { kSharded, kReplicated };

/// How the sum of gradients over data-parallel ranks becomes their average.
enum class GradientScaling {
  kSumThenDivide,  ///< FSDP2 here: divides once, the part that a rank keeps
  kDivideThenSum,  ///< Megatron-FSDP's default
  kAverage,        ///< in the collective itself (average_in_collective)
  kSum             ///< no average (calculate_per_token_loss)
};

/// How units are placed, computed and reduced. An absent dtype means the stored one.
struct ShardingOptions {
  at::Device device = at::kCPU;  ///< for forward and backward

  std::optional<at::ScalarType> param_dtype;   ///< of gathered parameters and their gradients
  std::optional<at::ScalarType> reduce_dtype;  ///< in which gradients are summed over ranks
  std::optional<at::ScalarType> output_dtype;  ///< units' outputs are cast to it
  bool casts_inputs = false;                   ///< units' floating inputs are cast to param_dtype
  /// dtype of the parameters that the optimizer updates (preserve_fp32_weights). Gathered
  /// parameters keep the stored dtype unless param_dtype is set.
  std::optional<at::ScalarType> main_dtype;
  /// dtype of the gradients that the optimizer reads; absent: that of the parameters that it
  /// updates.
  std::optional<at::ScalarType> gradient_dtype;

  /// ZeRO 3 shards both, ZeRO 2 gradients, ZeRO 1 neither: the optimizer sees only this rank's
  /// part.
  Placement parameters = Placement::kSharded;
  Placement gradients = Placement::kSharded;
  GradientScaling scaling = GradientScaling::kSumThenDivide;
  /// Number of ranks over which gradients are averaged, if it is more than the groups' `all`:
  /// experts receive tokens of all expert-parallel ranks. Used by kSumThenDivide.
  std::optional<int> num_averaged;

  /// Whether a unit frees its gathered parameters between forward and backward. Absent: all do
  /// except the root and the last block of a list, which backward needs first.
  std::optional<bool> reshard_after_forward;
  /// Whether backward reads the parameters. An embedding's does not, so its unit is not gathered
  /// for it.
  bool gathers_in_backward = true;
  /// Whether the micro-batches of a step add up whole gradients that are reduced once
  /// (defer_fsdp_grad_sync).
  bool defers_gradients = true;
  /// Whether a reduction runs during the next unit's backward; its input is kept that long.
  bool overlaps_reductions = true;
  /// Whether backward gathers the unit that ran before ahead when no explicit lists are set.
  /// Absent: on accelerators only.
  std::optional<bool> prefetches_implicitly;
  /// Number of units gathered ahead by explicit lists (enable_fsdp2_prefetch); 0: none.
  int64_t forward_prefetch_depth = 0;
  int64_t backward_prefetch_depth = 0;

  /// Parameters and ranks' ranges begin at multiples of this number of elements in a unit's buffer
  /// (besides 64 bytes): 256 keeps the blocks of an optimizer with 8-bit state on one rank.
  int64_t border_numel = 1;

  GradientCheck gradient_check = GradientCheck::kNone;
  std::optional<CPUOffloadPolicy> offload_policy;  ///< parameters and gradients are kept on the CPU
  TraceSink* trace = nullptr;  ///< receives every gather and reduction; may be null
};

/// The options for units over a group of `group_size`. With a group of one there is nothing to
/// gather: parameters are replicated, and so are gradients unless each micro-batch's are averaged
/// before the next are added. For larger groups the options are unchanged.
ShardingOptions fitted_to(ShardingOptions options, int group_size);

/// The options of a recipe's fsdp2 section. Throws UserError for an unknown dtype.
ShardingOptions sharding_options(const FSDP2Config& config, at::Device device);

/// Sets the policy's dtypes in options that are otherwise complete.
void apply_policy(const MixedPrecisionPolicy& policy, ShardingOptions& options);

/// The dtype that the `moe` section sets for an untied head. As upstream, only float32 has an
/// effect.
std::optional<at::ScalarType> own_head_dtype(const MoEParallelizerConfig& moe);

}  // namespace automodel::distributed
