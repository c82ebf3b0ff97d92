#include "recipes/check/strategy_check.h"

#include "distributed/strategies/nvfsdp.h"
#include "distributed/strategies/nvfsdp_options.h"
#include "models/catalog.h"
#include "recipes/build/build_engine.h"
#include "recipes/check/place_of.h"
#include "recipes/read/targets_distributed.h"

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
      const bool is_named = text.find(cat(" ", element.text(), ":")) != std::string_view::npos;
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
                            "megatron_fsdp is left out of this build (AUTOMODEL_NVFSDP)");
  }
  if (config.init_fsdp_with_meta_device && config.zero_dp_strategy == 0) {
    diagnostics.error(place_of(recipe, "distributed", "init_fsdp_with_meta_device"),
                      "init_fsdp_with_meta_device needs zero_dp_strategy 1, 2 or 3");
  }
  check_unit_modules(recipe, diagnostics);
}

void check_offloading(const Recipe& recipe, int64_t world_size, Diagnostics& diagnostics) {
  const auto& sizes = recipe.distributed.sizes;
  const int64_t others = sizes.tp_size.value_or(1) * sizes.pp_size.value_or(1);
  const bool is_sharded = world_size > others || sizes.ep_size.value_or(1) > 1;
  if (!recipe.distributed.fsdp2.offload_policy || is_sharded) return;
  diagnostics.warning(place_of(recipe, "distributed", "offload_policy"),
                      "offload_policy has no effect on one data-parallel rank: it holds "
                      "everything, nothing is sharded");
}

}  // namespace

void check_strategy(const Recipe& recipe, int64_t world_size, Diagnostics& diagnostics) {
  switch (recipe.distributed.strategy) {
    case Strategy::kFsdp2:
      return check_offloading(recipe, world_size, diagnostics);
    case Strategy::kMegatronFsdp:
      return check_megatron(recipe, diagnostics);
    case Strategy::kDdp:
      return;
  }
}

}  // namespace automodel::recipes
