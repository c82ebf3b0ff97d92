#include "recipes/check/check_built.h"

#include <algorithm>

#include "checkpoint/hf_folder.h"
#include "models/catalog.h"
#include "models/causal_lm.h"
#include "optim/optimizer.h"
#include "peft/adapter_keys.h"
#include "recipes/build/base_weights.h"
#include "recipes/build/build_model.h"
#include "recipes/check/place_of.h"
#include "recipes/read/hub_inputs.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

/// Prefixes of tensors that are drawn anew: at least one tensor of the model must begin with each.
void check_prefixes(const Recipe& recipe, const models::CausalLM& model,
                    const std::vector<std::string>& prefixes, Diagnostics& diagnostics) {
  for (const std::string& prefix : prefixes) {
    const bool is_known = std::any_of(
        model.key_map().begin(), model.key_map().end(),
        [&](const tensor::ParameterPart& part) { return part.name.starts_with(prefix); });
    if (!is_known) {
      diagnostics.error(place_of(recipe, "checkpoint", "skip_task_head_prefixes_for_base_model"),
                        cat("no trained tensor of the model begins with '", prefix, "'"));
    }
  }
}

/// A tensor of other dimensions than an optimizer's that takes matrices alone.
void check_matrices(const Recipe& recipe, const tensor::KeyMap& trained, Diagnostics& diagnostics) {
  if (!recipe.optimizer.takes_matrices_only) return;
  for (const tensor::ParameterPart& part : trained) {
    if (part.shape.size() == 2) continue;
    diagnostics.error(
        place_of(recipe, "optimizer", "_target_"),
        cat("this optimizer takes matrices alone, and ", part.name, " has ", part.shape.size(),
            " dimension(s); dion.Muon has AdamW for such tensors"));
    return;
  }
}

/// Patterns of the optimizer's groups: each must match the name of at least one parameter.
void check_groups(const Recipe& recipe, const tensor::KeyMap& trained, Diagnostics& diagnostics) {
  std::vector<std::string> names;
  for (const tensor::ParameterPart& part : trained) names.push_back(part.name);
  try {
    optim::check_overrides(recipe.optimizer.param_group_overrides, names);
  } catch (const UserError& error) {
    diagnostics.error(place_of(recipe, "optimizer", "param_group_overrides"), error.what());
  }
}

/// Checks the names, shapes and dtypes of the folder's weights against the model's.
void check_weights(const Recipe& recipe, const models::CausalLM& model,
                   const std::vector<std::string>& left_out, Diagnostics& diagnostics) {
  const Node& place = place_of(recipe, "model", "pretrained_model_name_or_path");
  try {
    const auto folder = checkpoint::HfFolder::open(recipe.model.folder);
    checkpoint::LoadOptions options = load_options(model, folder);
    options.skipped_prefixes.insert(options.skipped_prefixes.end(), left_out.begin(),
                                    left_out.end());
    const std::string missing = recipe.peft ? missing_beside_adapters(model, folder) : "";
    if (!missing.empty()) diagnostics.error(place, missing);
    const auto findings = checkpoint::check_weights(folder, peft::base_keys(model), options);
    if (!findings.empty()) {
      const std::string text = join(findings, "; ");
      const models::ClassHead head = models::class_head_of(recipe.model.hf_config);
      const bool is_head =
          recipe.model.classifies && text.find(cat(" ", head.rows, ".weight ")) != text.npos;
      diagnostics.error(
          place,
          cat("weights in ", recipe.model.folder, " do not fit the config: ", text,
              is_head ? cat("; checkpoint.skip_task_head_prefixes_for_base_model: ['",
                            join(head.modules, ".', '"), ".'] draws a head for other classes")
                      : ""));
    }
  } catch (const UserError& error) {
    diagnostics.error(place, error.what());
  }
}

}  // namespace

void check_built_model(const Recipe& recipe, bool looks_at_weights, Diagnostics& diagnostics) {
  const ModelRecipe& plan = recipe.model;
  const bool draws = plan.draws_weights();
  const std::vector<std::string> prefixes =
      recipe.checkpoint.skip_task_head_prefixes_for_base_model.value_or(std::vector<std::string>());
  if (draws && !prefixes.empty()) {
    diagnostics.warning(place_of(recipe, "checkpoint", "skip_task_head_prefixes_for_base_model"),
                        "no effect: all weights are drawn anew");
  }
  const bool looks_at_trained =
      !recipe.optimizer.param_group_overrides.empty() || recipe.optimizer.takes_matrices_only;
  const bool has_folder =
      looks_at_weights && !draws && !plan.folder.empty() && !awaits_weights(plan);
  if (!looks_at_trained && !has_folder && (draws || prefixes.empty())) return;
  if (!plan.hf_config.is_object() || !models::find_family(plan.hf_config).is_known ||
      !models::check_config(plan.hf_config).empty()) {
    return;
  }
  std::shared_ptr<models::CausalLM> model;
  try {
    model = build_model(recipe, at::kFloat);
  } catch (const UserError&) {
    return;  // check_peft reports why
  }
  if (!draws) check_prefixes(recipe, *model, prefixes, diagnostics);
  if (looks_at_trained) {
    tensor::KeyMap trained = model->key_map();
    const auto parameters = model->named_parameters();
    std::erase_if(trained, [&](const tensor::ParameterPart& part) {
      const at::Tensor* parameter = parameters.find(part.parameter);
      return parameter != nullptr && !parameter->requires_grad();
    });
    check_matrices(recipe, trained, diagnostics);
    check_groups(recipe, trained, diagnostics);
  }
  // Another error may be the reason why the weights do not fit.
  if (has_folder && !diagnostics.has_errors()) check_weights(recipe, *model, prefixes, diagnostics);
}

}  // namespace automodel::recipes
