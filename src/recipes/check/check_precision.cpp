#include "recipes/check/check_precision.h"

#include "core/text.h"
#include "recipes/build/base_weights.h"
#include "recipes/check/place_of.h"
#include "recipes/read/recipe.h"
#include "tensor/dtype.h"

namespace automodel::recipes {

namespace {

using config::Node;

/// The YAML node of the policy that the strategy uses; null when the recipe does not write one.
const Node* written_policy(const Recipe& recipe) {
  const Node* section = recipe.root.find("distributed");
  if (section == nullptr) return nullptr;
  const bool is_of_experts = recipe.distributed.moe && recipe.distributed.moe->mp_policy;
  const Node* holder = is_of_experts ? section->find("moe") : section;
  return holder == nullptr ? nullptr : holder->find("mp_policy");
}

/// Whether the optimizer updates float32 values whatever the parameters of the forward are.
bool updates_float32(const Recipe& recipe, int64_t world_size) {
  const distributed::DistributedSetup& setup = recipe.distributed;
  if (setup.strategy == distributed::Strategy::kMegatronFsdp &&
      setup.megatron_fsdp.preserve_fp32_weights &&
      distributed::data_parallel_size(setup, world_size) > 1) {
    return true;
  }
  if (recipe.peft && recipe.peft->lora_dtype) {
    return tensor::parse_dtype(*recipe.peft->lora_dtype) == at::kFloat;
  }
  return storage_dtype(recipe.model) == at::kFloat;
}

}  // namespace

void check_precision(const Recipe& recipe, int64_t world_size, config::Diagnostics& diagnostics,
                     std::string_view whose) {
  const distributed::DistributedSetup& setup = recipe.distributed;
  const auto policy = distributed::mixed_precision_policy(setup);
  const Node* written = written_policy(recipe);
  if (!policy || !policy->output_dtype || written == nullptr) return;
  if (distributed::autocast_dtype(setup)) return;
  if (policy->cast_forward_inputs && policy->param_dtype) return;
  const auto computed = policy->param_dtype ? tensor::parse_dtype(*policy->param_dtype)
                                            : std::optional(storage_dtype(recipe.model));
  const auto given = tensor::parse_dtype(*policy->output_dtype);
  if (!computed || !given) return;  // another check reports it
  // The first norm widens hidden states that are narrower; it cannot narrow wider ones.
  if (c10::promoteTypes(*given, *computed) == *computed) return;
  const std::string name = tensor::dtype_name(*computed);
  const Node* place = written->find("output_dtype");
  if (place == nullptr) return;
  const std::string text =
      cat(whose, "layers would get ", tensor::dtype_name(*given), " hidden states for ", name,
          " parameters: output_dtype is what one layer gives the next, and ",
          policy->param_dtype ? cat("cast_forward_inputs is false; cast_forward_inputs: true")
                              : cat("without param_dtype no input is cast; param_dtype: ", name),
          " would be right, or autocast_dtype: bfloat16");
  const bool is_sharded = distributed::data_parallel_size(setup, world_size) > 1 ||
                          setup.sizes.cp_size.value_or(1) > 1 || setup.moe.has_value();
  if (is_sharded) {
    diagnostics.error(*place, text);
  } else {
    diagnostics.warning(*place, cat("the policy has no effect on one rank; on several, ", text));
  }
}

void check_weight_bits(const Recipe& recipe, int64_t world_size, config::Diagnostics& diagnostics) {
  if (!recipe.optimizer.keeps_weight_bits || !recipe.model.hf_config.is_object()) return;
  const Node* written = recipe.optimizer.node.find("master_weight_bits");
  if (written == nullptr || !updates_float32(recipe, world_size)) return;
  diagnostics.warning(*written,
                      "no effect: what is trained is float32 and lacks no bits of a weight "
                      "(flashoptim refuses this key then)");
}

void check_eps(const Recipe& recipe, int64_t world_size, config::Diagnostics& diagnostics) {
  constexpr double kEnough = 1e-4;
  const std::optional<double> eps = recipe.optimizer.eps_beside_own_dtype;
  const bool is_float16 = recipe.model.hf_config.is_object() &&
                          storage_dtype(recipe.model) == at::kHalf &&
                          !updates_float32(recipe, world_size);
  if (!is_float16 || !eps || *eps >= kEnough) return;
  diagnostics.warning(
      place_of(recipe, "optimizer", "eps"),
      cat("Adam's averages are float16 as its weights are: squares of gradients below 2e-4 are 0 "
          "there, and what such a gradient changes is divided by eps, ",
          *eps,
          ", alone, so the loss is likely to grow. eps: 1e-4, torch_dtype: bfloat16, or "
          "float32 with autocast_dtype: float16 helps"));
}

}  // namespace automodel::recipes
