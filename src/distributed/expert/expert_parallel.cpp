#include "distributed/expert/expert_parallel.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "distributed/fsdp/fully_shard.h"
#include "distributed/groups/sharding_groups.h"
#include "distributed/tensor/tp_layers.h"
#include "tensor/shard_spec.h"

namespace automodel::distributed {

namespace {

/// The part of `part` within the elements [begin, end) of its parameter, which become the first
/// ones; nullopt when none are.
std::optional<tensor::ParameterPart> kept_part(const tensor::ParameterPart& part, int64_t begin,
                                               int64_t end) {
  const int64_t numel = tensor::ShardSpec::whole(part.shape).global_numel();
  const int64_t row = numel / part.shape[0];
  const int64_t part_begin = part.row_begin * row;
  const int64_t first = std::max(begin, part_begin);
  const int64_t last = std::min(end, part_begin + numel);
  if (first >= last) return std::nullopt;
  tensor::ParameterPart kept = part;
  kept.row_begin = (first - begin) / row;
  if (last - first == numel) return kept;
  AM_CHECK(part.box_shape.empty() && (first - part_begin) % row == 0 && (last - first) % row == 0,
           part.name);
  kept.box_offset.assign(part.shape.size(), 0);
  kept.box_offset[0] = (first - part_begin) / row;
  kept.box_shape = part.shape;
  kept.box_shape[0] = (last - first) / row;
  return kept;
}

/// Cuts a parameter [E, ...] to the experts [first, first + count) and adds its parts to `keys`.
void keep_experts(const std::string& name, at::Tensor parameter, const tensor::KeyMap& all,
                  std::pair<int64_t, int64_t> range, tensor::KeyMap& keys) {
  const auto [first, count] = range;
  const int64_t size = parameter.numel() / parameter.size(0);
  for (const tensor::ParameterPart& part : all) {
    if (part.parameter != name) continue;
    if (auto kept = kept_part(part, first * size, (first + count) * size)) {
      keys.push_back(std::move(*kept));
    }
  }
  std::vector<int64_t> sizes = parameter.sizes().vec();
  sizes[0] = count;
  tensor::resize_placeholder(parameter, sizes);
}

}  // namespace

SplitExperts split_experts(torch::nn::Module& model, const nn::ParallelPlan& plan,
                           const tensor::KeyMap& keys, const ExpertGroups& groups) {
  const comm::ProcessGroup& ep = groups.ep;
  SplitExperts split;
  const std::set<std::string> grouped(plan.expert_modules.begin(), plan.expert_modules.end());
  for (const tensor::ParameterPart& part : keys) {
    if (!grouped.contains(parent_of(part.parameter))) split.keys.push_back(part);
  }
  for (const std::string& fqn : plan.expert_modules) {
    auto* layer = dynamic_cast<nn::SplitsExperts*>(&module_at(model, parent_of(fqn)));
    AM_CHECK(layer != nullptr, fqn);
    const int64_t num_experts = layer->num_experts();
    if (num_experts % ep.size() != 0) {
      throw UserError(cat("number of experts (", num_experts,
                          ") must be divisible by the expert-parallel size (", ep.size(), ")"));
    }
    const int64_t count = num_experts / ep.size();
    torch::nn::Module& experts = module_at(model, fqn);
    for (const auto& item : experts.named_parameters(false)) {
      keep_experts(cat(fqn, ".", item.key()), item.value(), keys, {ep.rank() * count, count},
                   split.keys);
    }
    layer->set_token_dispatcher(make_all_to_all_dispatcher(groups, num_experts));
    split.modules.push_back(&experts);
  }
  return split;
}

void shard_experts(const SplitExperts& experts, const comm::ProcessGroup& ep_shard,
                   const ShardingOptions& options, int num_averaged) {
  AM_CHECK(options.scaling == GradientScaling::kSumThenDivide);
  ShardingOptions own = fitted_to(options, ep_shard.size());
  own.num_averaged = num_averaged;
  for (torch::nn::Module* module : experts.modules) {
    fully_shard(*module, ShardingGroups::of(ep_shard), own);
  }
}

}  // namespace automodel::distributed
