#include <iostream>

#include "config/load.h"
#include "core/error.h"
#include "recipes/recipe.h"
#include "recipes/run_recipe.h"

namespace automodel::recipes {

int check_recipe(const std::string& path, const std::vector<std::string>& overrides,
                 int world_size) {
  const config::Document document = config::load_recipe(path, overrides);
  config::Diagnostics diagnostics(document.sources);
  const Recipe recipe = read_recipe(document.root, diagnostics);
  check_run(recipe, {.world_size = world_size}, diagnostics);
  for (const std::string& warning : document.warnings) std::cout << warning << "\n";
  using config::Severity;
  for (const Severity severity :
       {Severity::kNote, Severity::kWarning, Severity::kUnsupported, Severity::kError}) {
    for (const std::string& text : diagnostics.render_all(severity)) std::cout << text << "\n";
  }
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
  std::cout << path << ": ok for " << world_size << (world_size == 1 ? " rank\n" : " ranks\n");
  return 0;
}

}  // namespace automodel::recipes
