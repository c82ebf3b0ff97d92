#include "recipes/check/check_peft.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/file.h"
#include "models/catalog.h"
#include "peft/adapter_file.h"
#include "peft/adapter_folder.h"
#include "peft/apply_lora.h"
#include "peft/saved_modules.h"
#include "recipes/check/place_of.h"
#include "recipes/read/recipe_paths.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

/// Checks the adapter that the run begins with.
void check_first_adapter(const Recipe& recipe, models::CausalLM& model, Diagnostics& diagnostics) {
  const auto& folder = recipe.peft->adapter_name_or_path;
  if (!folder) return;
  const Node& place = place_of(recipe, "peft", "adapter_name_or_path");
  if (!path_exists(*folder)) {
    diagnostics.error(place, cat("no such folder: ", *folder, looked_for_text(place, diagnostics)));
    return;
  }
  try {
    const std::string fault = peft::find_adapter_fault(*folder, *recipe.peft, model);
    if (!fault.empty()) diagnostics.error(place, fault);
    const std::string base = peft::read_adapter_config(*folder).base;
    std::error_code unlike;  // names of the hub are no files
    const bool is_one = base == recipe.model.source ||
                        std::filesystem::equivalent(base, recipe.model.source, unlike);
    if (!base.empty() && !recipe.model.source.empty() && !is_one) {
      diagnostics.warning(
          place, cat("the adapter was made for ", base, ", the model is ", recipe.model.source));
    }
  } catch (const UnsupportedError& error) {
    diagnostics.unsupported(place, error.what());
  } catch (const UserError& error) {
    diagnostics.error(place, error.what());
  }
}

/// save_consolidated cannot export a whole model from a checkpoint of adapters.
void check_export(const Recipe& recipe, Diagnostics& diagnostics) {
  const Node* section = recipe.root.find("checkpoint");
  const Node* key = section == nullptr ? nullptr : section->find("save_consolidated");
  if (key == nullptr || !recipe.checkpoint.enabled) return;
  if (recipe.checkpoint.save_consolidated == "false") return;
  diagnostics.warning_at_key(*key,
                             "'save_consolidated' has no effect with adapters: a checkpoint's "
                             "model/ is one; automodel merge-lora writes the whole model");
}

/// Warns of adapters that PEFT does not load: its list of layers of Mamba, by their names, and DoRA
/// of layers whose names it takes for experts'.
void check_loadable(const Recipe& recipe, const Json& hf_config,
                    const std::vector<peft::AdaptedModule>& modules, Diagnostics& diagnostics) {
  const bool is_misread =
      recipe.peft->use_dora && std::ranges::any_of(modules, [&](const auto& module) {
        return peft::is_taken_for_experts(hf_config, module.name);
      });
  if (is_misread) {
    diagnostics.warning(
        place_of(recipe, "peft", "use_dora"),
        "PEFT takes gate_proj, up_proj and down_proj of this family for names of experts, which "
        "have no DoRA, and leaves these layers out; merge-lora takes them. exclude_modules: "
        "['*gate_proj', '*up_proj', '*down_proj'] trains none of them");
  }
  const std::string type = hf_config.get("model_type", "");
  const auto has = [&](std::string_view part) {
    return std::ranges::any_of(
        modules, [&](const auto& module) { return module.name.find(part) != std::string::npos; });
  };
  if ((type == "nemotron_h" || type == "falcon_h1") && has(".out_proj")) {
    diagnostics.warning(place_of(recipe, "peft", "target_modules"),
                        "PEFT does not load adapters of Mamba's out_proj; merge-lora does. "
                        "exclude_modules: '*out_proj' leaves them out");
  }
  if (type == "laguna" && has(".shared_expert")) {
    diagnostics.warning(place_of(recipe, "peft", "target_modules"),
                        "PEFT does not load adapters of Laguna's shared experts, whose modules "
                        "transformers renames twice; merge-lora does. exclude_modules: "
                        "'*shared_expert*' leaves them out");
  }
}

}  // namespace

void check_peft(const Recipe& recipe, Diagnostics& diagnostics) {
  if (!recipe.peft) return;
  check_export(recipe, diagnostics);
  const Json& config = recipe.model.hf_config;
  const bool is_buildable = config.is_object() && models::find_family(config).is_known &&
                            models::check_config(config).empty();
  if (!is_buildable) return;
  const auto model = models::build_causal_lm(config, at::kFloat);
  using Kind = peft::PeftFinding::Kind;
  bool is_good = true;
  const peft::PeftChoice choice = peft::choose_modules(*model, *recipe.peft);
  for (const peft::PeftFinding& finding : choice.findings) {
    const Node& value = place_of(recipe, "peft", finding.key);
    const auto element = std::ranges::find_if(value.children(), [&](const Node& child) {
      return value.is_sequence() && child.text() == finding.element;
    });
    const Node& place = element == value.children().end() ? value : *element;
    is_good = is_good && finding.kind == Kind::kWarning;
    if (finding.kind == Kind::kUnsupported) diagnostics.unsupported(place, finding.text);
    if (finding.kind == Kind::kWarning) diagnostics.warning(place, finding.text);
    if (finding.kind == Kind::kError) diagnostics.error(place, finding.text);
  }
  if (!is_good) return;
  check_loadable(recipe, model->hf_config(), choice.modules, diagnostics);
  for (const std::string& text : peft::unloadable_saved_modules(*model, choice.saved)) {
    diagnostics.warning(place_of(recipe, "peft", "modules_to_save"), text);
  }
  try {
    peft::apply_lora(*model, *recipe.peft, at::kFloat);
  } catch (const UnsupportedError& error) {
    diagnostics.unsupported(*recipe.root.find("peft"), error.what());
    return;
  }
  check_first_adapter(recipe, *model, diagnostics);
}

}  // namespace automodel::recipes
