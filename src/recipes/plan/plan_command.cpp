#include "recipes/plan/plan_command.h"

#include <iostream>

#include "config/load.h"
#include "core/error.h"
#include "recipes/build/build_model.h"
#include "recipes/check/check_run.h"
#include "recipes/plan/make_plan.h"
#include "recipes/plan/plan_fit.h"
#include "recipes/plan/plan_text.h"
#include "recipes/read/hub_inputs.h"
#include "recipes/read/read_recipe.h"

namespace automodel::recipes {

namespace {

/// The device of `--device`; without it, a CUDA device when the request names a device's memory or
/// the recipe's backend names NCCL.
at::Device planned_device(const Recipe& recipe, const PlanRequest& request) {
  const bool is_asked = !request.device_memory.empty() || recipe.dist_env.names_nccl();
  const bool is_cuda = request.device.empty() ? is_asked : request.device == "cuda";
  return is_cuda ? at::Device(at::kCUDA) : at::Device(at::kCPU);
}

RecipePlan make_plan(const Recipe& recipe, const PlanRequest& request, int64_t world_size) {
  return make_plan(recipe, {.recipe_path = request.recipe_path,
                            .world_size = world_size,
                            .sequence_length = request.sequence_length,
                            .device = planned_device(recipe, request)});
}

/// The plan of a changed recipe; nullopt when the changed recipe has errors.
std::optional<RecipePlan> plan_again(PlanRequest request, const std::vector<std::string>& overrides,
                                     int64_t world_size) {
  request.overrides.insert(request.overrides.end(), overrides.begin(), overrides.end());
  try {
    const config::Document document = config::load_recipe(request.recipe_path, request.overrides);
    config::Diagnostics diagnostics(document.sources);
    const Recipe recipe = read_recipe(document.root, diagnostics);
    check_run(recipe, {.world_size = world_size, .loads_tokenizers = false, .looks_at_data = false},
              diagnostics);
    if (diagnostics.has_errors()) return std::nullopt;
    return make_plan(recipe, request, world_size);
  } catch (const UserError&) {
    return std::nullopt;  // the change contradicts the recipe
  }
}

}  // namespace

int run_plan_command(const PlanRequest& request) {
  const config::Document document = config::load_recipe(request.recipe_path, request.overrides);
  config::Diagnostics diagnostics(document.sources);
  SilentReporter silent;
  const Recipe recipe =
      read_with_hub(document, HubFetch::kConfig, /*is_run=*/true, silent, diagnostics);
  const int64_t ranks = request.world_size.value_or(fitting_world_size(recipe));
  check_run(recipe,
            {.world_size = ranks,
             .is_world_size_given = request.world_size.has_value(),
             .loads_tokenizers = false,
             .looks_at_data = false},
            diagnostics);
  using config::Severity;
  if (diagnostics.count(Severity::kError) > 0) diagnostics.throw_if_errors();
  if (!recipe.model.hf_config.is_object()) {
    throw InputError(cat("model '", recipe.model.source,
                         "' is not on this machine: a plan needs "
                         "its config.json",
                         recipe.model.looked_for));
  }
  const auto missing = diagnostics.render_all(Severity::kUnsupported);
  const auto plan_or_say_why = [&] {
    try {
      return make_plan(recipe, request, ranks);
    } catch (const UserError& error) {
      const std::string placed = join(missing, "\n");
      if (placed.find(error.what()) == std::string::npos) throw;
      throw UnsupportedError(placed);  // the same text, with its place in the recipe
    }
  };
  RecipePlan plan = plan_or_say_why();
  if (!request.device_memory.empty()) {
    // A teacher's own ranks are none of the plan's.
    const int64_t num_others = ranks - plan.sizes.world_size();
    plan.fit = fit_plan(plan, recipe, parse_device_memory(request.device_memory),
                        [&](const std::vector<std::string>& overrides, int64_t world_size) {
                          return plan_again(request, overrides, world_size + num_others);
                        });
  }
  std::cout << (request.is_json ? plan_json(plan).dump(2) + "\n" : plan_text(plan));
  for (const std::string& text : missing) std::cerr << text << "\n";
  return missing.empty() ? 0 : static_cast<int>(ExitCode::kUnsupported);
}

}  // namespace automodel::recipes
