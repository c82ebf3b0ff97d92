#include "recipes/check/check_recipe.h"

#include <iostream>

#include "config/load.h"
#include "core/error.h"
#include "recipes/check/check_run.h"
#include "recipes/read/hub_inputs.h"
#include "recipes/read/read_distillation.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

namespace {

/// Explains the number of ranks that `check` chose when none was given.
std::string how_ranks_were_chosen(const Recipe& recipe, int64_t ranks) {
  const int64_t of_student = rank_shares(recipe, ranks).student;
  const int64_t dp = distributed::data_parallel_size(recipe.distributed, of_student);
  const bool fits = distributed::check_setup(recipe.distributed, of_student).empty() &&
                    training::check_step_scheduler(recipe.step_scheduler, dp).empty();
  const std::string text = ranks == 1 ? "1 rank" : cat(ranks, " ranks");
  if (!fits)
    return cat("checked for ", text, ": its mesh and batch sizes fit no number of ranks\n");
  return cat("checked for ", text, ", the fewest that the recipe fits",
             "; --world-size says another number\n");
}

}  // namespace

int check_recipe(const std::string& path, const std::vector<std::string>& overrides,
                 std::optional<int64_t> world_size) {
  const config::Document document = config::load_recipe(path, overrides);
  config::Diagnostics diagnostics(document.sources);
  SilentReporter silent;  // failed downloads are among the findings
  const Recipe recipe =
      read_with_hub(document, HubFetch::kDescriptions, /*is_run=*/false, silent, diagnostics);
  const int64_t ranks = world_size.value_or(fitting_world_size(recipe));
  check_run(recipe, {.world_size = ranks, .is_world_size_given = world_size.has_value()},
            diagnostics);
  for (const std::string& warning : document.warnings) std::cout << warning << "\n";
  using config::Severity;
  for (const Severity severity :
       {Severity::kNote, Severity::kWarning, Severity::kUnsupported, Severity::kError}) {
    for (const std::string& text : diagnostics.render_all(severity)) std::cout << text << "\n";
  }
  if (!world_size) std::cout << how_ranks_were_chosen(recipe, ranks);
  const size_t errors = diagnostics.count(Severity::kError);
  const size_t unsupported = diagnostics.count(Severity::kUnsupported);
  if (errors > 0) {
    std::cout << path << ": " << errors << (errors == 1 ? " mistake" : " mistakes") << "\n";
    return static_cast<int>(ExitCode::kRecipe);
  }
  if (unsupported > 0) {
    std::cout << path << ": right, but needs " << unsupported
              << (unsupported == 1 ? " feature" : " features")
              << " that this version does not have\n";
    return static_cast<int>(ExitCode::kUnsupported);
  }
  std::cout << path << ": ok for " << ranks << (ranks == 1 ? " rank\n" : " ranks\n");
  return 0;
}

}  // namespace automodel::recipes
