#include "recipes/check/strategy_check.h"

#include "distributed/strategies/nvfsdp.h"
#include "distributed/strategies/nvfsdp_options.h"
#include "models/catalog.h"
#include "recipes/build/base_weights.h"
#include "recipes/build/build_engine.h"
#include "recipes/check/place_of.h"
#include "recipes/read/targets_distributed.h"
#include "tensor/dtype.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;
using distributed::Strategy;

/// Reports a warning at the element of a list that the warning names.
class WarnAtElement final : public Reporter {
 public:
  WarnAtElement(const Node& list, Diagnostics& diagnostics)
      : list_(list), diagnostics_(diagnostics) {}

  void info(std::string_view) override {}
  void error(std::string_view) override {}
  void warning(std::string_view text) override {
    for (const Node& element : list_.children()) {
      const std::string name = element.string_value().value_or("");
      const bool is_named = text.find(cat(" ", name, ":")) != std::string_view::npos;
      if (is_named) return diagnostics_.warning(element, cat(text, "; it is left out"));
    }
    diagnostics_.warning(list_, std::string(text));
  }

 private:
  const Node& list_;
  Diagnostics& diagnostics_;
};

void check_unit_modules(const Recipe& recipe, Diagnostics& diagnostics) {
  const auto& config = recipe.distributed.megatron_fsdp;
  const Json& hf_config = recipe.model.hf_config;
  const bool is_buildable = hf_config.is_object() && models::find_family(hf_config).is_known &&
                            models::check_config(hf_config).empty();
  if (!config.megatron_fsdp_unit_modules || !is_buildable) return;
  const Node& place = place_of(recipe, "distributed", "megatron_fsdp_unit_modules");
  const auto model = models::build_causal_lm(hf_config, at::kFloat);
  WarnAtElement reporter(place, diagnostics);
  distributed::NvfsdpOptions options;
  options.config = config;
  options.classes = recipe_classes();
  options.reporter = &reporter;
  try {
    distributed::chosen_units(parallel_model(*model), options);
  } catch (const UserError& error) {
    diagnostics.error(place, error.what());
  }
}

void check_megatron(const Recipe& recipe, Diagnostics& diagnostics) {
  const auto& config = recipe.distributed.megatron_fsdp;
  if (!distributed::HAVE_NVFSDP) {
    diagnostics.unsupported(place_of(recipe, "distributed", "strategy"),
                            "nvFSDP is not installed: this build leaves megatron_fsdp out "
                            "(AUTOMODEL_NVFSDP)");
  }
  if (config.init_fsdp_with_meta_device && distributed::shards_nothing(config)) {
    diagnostics.error(place_of(recipe, "distributed", "init_fsdp_with_meta_device"),
                      "init_fsdp_with_meta_device needs zero_dp_strategy 1, 2 or 3");
  }
  check_unit_modules(recipe, diagnostics);
}

void check_offloading(const Recipe& recipe, Diagnostics& diagnostics) {
  if (!recipe.distributed.fsdp2.offload_policy) return;
  diagnostics.warning(place_of(recipe, "distributed", "offload_policy"),
                      "offload_policy has no effect on one data-parallel rank: it holds "
                      "everything, nothing is sharded");
}

void check_mixin_on_one_rank(const Recipe& recipe, Diagnostics& diagnostics) {
  if (!recipe.model.enables_fsdp_optimizations || !has_experts(recipe)) return;
  diagnostics.warning(place_of(recipe, "model", "backend"),
                      "enable_fsdp_optimizations has no effect on one data-parallel rank: it holds "
                      "everything");
}

/// Warns at a key of what it does not do.
void warn_of_one_rank(const Recipe& recipe, const std::string& key, const std::string& instead,
                      Diagnostics& diagnostics) {
  const Node* place = recipe.root.find_path(cat("distributed.", key));
  if (place == nullptr || place->is_null()) return;
  diagnostics.warning(*place, cat(key,
                                  " has no effect on one data-parallel rank, where nothing is "
                                  "sharded: ",
                                  instead));
}

/// Whether a dtype that is given, and is one, holds no more than another.
bool is_narrower(const std::optional<std::string>& name, at::ScalarType other) {
  const auto dtype = name ? tensor::parse_dtype(*name) : std::nullopt;
  return dtype && c10::promoteTypes(*dtype, other) == other;
}

void check_policy_on_one_rank(const Recipe& recipe, at::ScalarType stored,
                              Diagnostics& diagnostics) {
  const auto& policy = recipe.distributed.fsdp2.mp_policy;
  if (!policy) return;
  const auto differs = [&](const std::optional<std::string>& name) {
    const auto dtype = name ? tensor::parse_dtype(*name) : std::nullopt;
    return dtype && *dtype != stored;
  };
  const std::string name = tensor::dtype_name(stored);
  if (differs(policy->param_dtype)) {
    warn_of_one_rank(recipe, "mp_policy.param_dtype",
                     cat("parameters are used in ", name, ", as they are stored"), diagnostics);
  }
  // Wider, a reduction of one is what it would be.
  if (differs(policy->reduce_dtype) && is_narrower(policy->reduce_dtype, stored)) {
    warn_of_one_rank(recipe, "mp_policy.reduce_dtype", "gradients are not reduced", diagnostics);
  }
  // check_precision tells of wider outputs without casts, unless products are autocast.
  const bool casts = policy->cast_forward_inputs && policy->param_dtype;
  if (differs(policy->output_dtype) && (casts || is_narrower(policy->output_dtype, stored) ||
                                        recipe.distributed.fsdp2.autocast_dtype)) {
    warn_of_one_rank(recipe, "mp_policy.output_dtype", "logits are not cast", diagnostics);
  }
}

void check_megatron_on_one_rank(const Recipe& recipe, at::ScalarType stored,
                                Diagnostics& diagnostics) {
  const auto& config = recipe.distributed.megatron_fsdp;
  if (stored == at::kFloat) return;
  const std::string name = tensor::dtype_name(stored);
  if (config.preserve_fp32_weights) {
    warn_of_one_rank(recipe, "preserve_fp32_weights",
                     cat("weights are kept in ", name, ", as they are stored"), diagnostics);
  }
  if (config.grad_reduce_in_fp32) {
    warn_of_one_rank(recipe, "grad_reduce_in_fp32",
                     cat("gradients are kept in ", name, ", as the weights are"), diagnostics);
  }
}

}  // namespace

bool has_several_sharers(const distributed::DistributedSetup& setup, int64_t world_size) {
  const int64_t others = setup.sizes.tp_size.value_or(1) * setup.sizes.pp_size.value_or(1);
  return world_size > others || setup.sizes.ep_size.value_or(1) > 1;
}

bool has_experts(const Recipe& recipe) {
  return models::num_routed_experts(recipe.model.hf_config).value_or(0) != 0;
}

void check_one_rank(const Recipe& recipe, int64_t world_size, Diagnostics& diagnostics) {
  if (has_several_sharers(recipe.distributed, world_size)) return;
  const at::ScalarType stored = storage_dtype(recipe.model);
  switch (recipe.distributed.strategy) {
    case Strategy::kFsdp2:
      check_offloading(recipe, diagnostics);
      check_mixin_on_one_rank(recipe, diagnostics);
      return check_policy_on_one_rank(recipe, stored, diagnostics);
    case Strategy::kMegatronFsdp:
      return check_megatron_on_one_rank(recipe, stored, diagnostics);
    case Strategy::kDdp:
      return;
  }
}

void check_strategy(const Recipe& recipe, Diagnostics& diagnostics) {
  if (recipe.distributed.strategy == Strategy::kMegatronFsdp) check_megatron(recipe, diagnostics);
}

}  // namespace automodel::recipes
