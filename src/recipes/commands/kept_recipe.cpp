#include "recipes/commands/kept_recipe.h"

#include "checkpoint/state_files.h"
#include "config/load.h"
#include "core/error.h"
#include "core/text.h"
#include "recipes/read/hub_inputs.h"

namespace automodel::recipes {

Recipe read_kept_recipe(const std::string& checkpoint, Reporter& reporter) {
  const config::Document document = config::load_recipe(checkpoint::recipe_path(checkpoint), {});
  config::Diagnostics diagnostics(document.sources);
  Recipe recipe =
      read_with_hub(document, HubFetch::kDescriptions, /*is_run=*/false, reporter, diagnostics);
  const auto errors = diagnostics.render_all(config::Severity::kError);
  if (!errors.empty()) {
    throw UserError(cat(join(errors, "\n"), "\nis this the folder that the run was started in?"));
  }
  return recipe;
}

}  // namespace automodel::recipes
