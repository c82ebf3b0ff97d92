#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "core/reporter.h"
#include "distributed/fsdp/gradient_check.h"
#include "distributed/groups/sharding_groups.h"
#include "distributed/settings/distributed_config.h"

namespace automodel::distributed {

/// Whether a rank keeps its part of something or all of it.
enum class Placement { kSharded, kReplicated };

/// How the sum of gradients over the data-parallel ranks becomes their average.
enum class GradientScaling {
  kSumThenDivide,  ///< FSDP2 here: one division of the part that a rank keeps
  kDivideThenSum,  ///< Megatron-FSDP's default
  kAverage,        ///< in the collective (average_in_collective)
  kSum             ///< not at all (calculate_per_token_loss)
};

/// How units are placed, computed with and reduced. Dtypes absent mean "as stored".
struct ShardingOptions {
  at::Device device = at::kCPU;  ///< that forward and backward run on

  std::optional<at::ScalarType> param_dtype;   ///< of gathered parameters and their gradients
  std::optional<at::ScalarType> reduce_dtype;  ///< in which gradients are summed over ranks
  std::optional<at::ScalarType> output_dtype;  ///< that a unit's output is cast to
  bool casts_inputs = false;                   ///< a unit's floating inputs go to param_dtype
  /// dtype of the parameters that the optimizer updates (preserve_fp32_weights). What is gathered
  /// from them keeps the stored dtype unless param_dtype says otherwise.
  std::optional<at::ScalarType> main_dtype;
  /// dtype of the gradients that the optimizer reads; absent: that of the parameters it updates.
  std::optional<at::ScalarType> gradient_dtype;

  /// ZeRO 3 shards both, 2 gradients, 1 none: the optimizer always sees this rank's part only.
  Placement parameters = Placement::kSharded;
  Placement gradients = Placement::kSharded;
  GradientScaling scaling = GradientScaling::kSumThenDivide;
  /// Ranks that gradients are averaged over when they are more than the groups' `all`: those of
  /// experts have the tokens of all expert-parallel ranks in them. For kSumThenDivide.
  std::optional<int> num_averaged;

  /// A unit gives its gathered parameters up between forward and backward. Absent: all but the
  /// root, and of a list of blocks all but the last, which backward needs first.
  std::optional<bool> reshard_after_forward;
  /// Backward reads the parameters. An embedding's does not: its unit is not gathered for it.
  bool gathers_in_backward = true;
  /// Gradients of a step's micro-batches are reduced once, whole (defer_fsdp_grad_sync).
  bool defers_gradients = true;
  /// A reduction runs while the next unit's backward does; its input stays for as long.
  bool overlaps_reductions = true;
  /// In backward, without explicit lists, the unit that ran before is gathered ahead. Absent: on
  /// accelerators.
  std::optional<bool> prefetches_implicitly;
  /// Units gathered ahead, by explicit lists (enable_fsdp2_prefetch); 0: none.
  int64_t forward_prefetch_depth = 0;
  int64_t backward_prefetch_depth = 0;

  GradientCheck gradient_check = GradientCheck::kNone;
  std::optional<CPUOffloadPolicy> offload_policy;  ///< parameters and gradients rest on the CPU
  TraceSink* trace = nullptr;  ///< receives every gather and reduction; may be null
};

/// The options for units over a group of one, where there is nothing to gather: parameters stay
/// where they are, and so do gradients unless each micro-batch's are averaged before the next ones
/// are added. For larger groups as they are.
ShardingOptions fitted_to(ShardingOptions options, int group_size);

/// Freed buffers of a size that stay for the next unit.
int64_t num_kept_buffers(const ShardingOptions& options);

/// The options of a recipe's fsdp2 section. Throws UserError for an unknown dtype.
ShardingOptions sharding_options(const FSDP2Config& config, at::Device device);

/// The policy's dtypes in options that hold everything else already.
void apply_policy(const MixedPrecisionPolicy& policy, ShardingOptions& options);

/// The dtype that the `moe` section gives an untied head. Upstream heeds float32 only.
std::optional<at::ScalarType> own_head_dtype(const MoEParallelizerConfig& moe);

}  // namespace automodel::distributed
