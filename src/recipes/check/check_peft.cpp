#include "recipes/check/check_peft.h"

#include "core/file.h"
#include "models/catalog.h"
#include "peft/adapter_folder.h"
#include "peft/apply_lora.h"
#include "recipes/read/recipe_paths.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

const Node& place_in(const Recipe& recipe, const char* section, const std::string& key) {
  const Node& node = *recipe.root.find(section);
  const Node* child = node.find(key);
  return child != nullptr ? *child : node;
}

/// Parallelism that adapters do not have here.
void check_peft_mesh(const Recipe& recipe, Diagnostics& diagnostics) {
  const distributed::ParallelismSizes& sizes = recipe.distributed.sizes;
  const peft::PeftConfig& config = *recipe.peft;
  const auto refuse = [&](const std::optional<int64_t>& size, const char* key, const char* what) {
    if (size.value_or(1) == 1) return;
    diagnostics.unsupported(place_in(recipe, "distributed", key),
                            cat(what, " with ", key, " > 1 is not in this version"));
  };
  refuse(sizes.pp_size, "pp_size", "training of adapters (peft)");
  refuse(sizes.ep_size, "ep_size", "training of adapters (peft)");
  if (config.use_dora) refuse(sizes.tp_size, "tp_size", "DoRA (peft.use_dora)");
  if (config.dropout > 0) {
    refuse(sizes.tp_size, "tp_size", "dropout of adapters (peft.dropout)");
    refuse(sizes.cp_size, "cp_size", "dropout of adapters (peft.dropout)");
  }
  if (recipe.distributed.strategy == distributed::Strategy::kMegatronFsdp) {
    diagnostics.unsupported(place_in(recipe, "distributed", "strategy"),
                            "training of adapters (peft) with megatron_fsdp is not in this "
                            "version; use fsdp2 or ddp");
  }
}

/// The adapter that a run is to start with.
void check_first_adapter(const Recipe& recipe, models::CausalLM& model, Diagnostics& diagnostics) {
  const auto& folder = recipe.peft->adapter_name_or_path;
  if (!folder) return;
  const Node& place = place_in(recipe, "peft", "adapter_name_or_path");
  if (!path_exists(*folder)) {
    diagnostics.error(place, cat("no such folder: ", *folder, looked_for_text(place, diagnostics)));
    return;
  }
  try {
    const std::string fault = peft::find_adapter_fault(*folder, *recipe.peft, model);
    if (!fault.empty()) diagnostics.error(place, fault);
    const std::string base = peft::read_adapter_config(*folder).base;
    if (!base.empty() && !recipe.model.source.empty() && base != recipe.model.source) {
      diagnostics.warning(
          place, cat("the adapter was made for ", base, ", the model is ", recipe.model.source));
    }
  } catch (const UnsupportedError& error) {
    diagnostics.unsupported(place, error.what());
  } catch (const UserError& error) {
    diagnostics.error(place, error.what());
  }
}

}  // namespace

void check_peft(const Recipe& recipe, Diagnostics& diagnostics) {
  if (!recipe.peft) return;
  check_peft_mesh(recipe, diagnostics);
  const Json& config = recipe.model.hf_config;
  const bool is_buildable = config.is_object() && models::find_family(config).is_known &&
                            models::check_config(config).empty();
  if (!is_buildable) return;
  const auto model = models::build_causal_lm(config, at::kFloat);
  using Kind = peft::PeftFinding::Kind;
  bool is_good = true;
  for (const peft::PeftFinding& finding : peft::choose_modules(*model, *recipe.peft).findings) {
    const Node& place = place_in(recipe, "peft", finding.key);
    is_good = is_good && finding.kind == Kind::kWarning;
    if (finding.kind == Kind::kUnsupported) diagnostics.unsupported(place, finding.text);
    if (finding.kind == Kind::kWarning) diagnostics.warning(place, finding.text);
    if (finding.kind == Kind::kError) diagnostics.error(place, finding.text);
  }
  if (!is_good) return;
  try {
    peft::apply_lora(*model, *recipe.peft, at::kFloat);
  } catch (const UnsupportedError& error) {
    diagnostics.unsupported(*recipe.root.find("peft"), error.what());
    return;
  }
  check_first_adapter(recipe, *model, diagnostics);
}

}  // namespace automodel::recipes
