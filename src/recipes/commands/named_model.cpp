#include "recipes/commands/named_model.h"

#include <iostream>

#include "core/file.h"
#include "core/text.h"
#include "hub/hub.h"
#include "recipes/commands/terminal_progress.h"

namespace automodel::recipes {

namespace {

class WarningsAlone final : public Reporter {
 public:
  void info(std::string_view) override {}
  void warning(std::string_view text) override { warn(text); }
  void error(std::string_view text) override { warn(text); }
};

}  // namespace

void warn(std::string_view text) {
  std::cerr << "warning: " << text << "\n";
}

std::string local_model(const std::string& name_or_path) {
  if (path_exists(name_or_path) || !hub::looks_like_hub_name(name_or_path)) return name_or_path;
  const hub::Repository repository{hub::RepositoryKind::kModel, name_or_path, "main"};
  WarningsAlone reporter;
  std::string folder;
  with_terminal_progress(cat("fetching ", name_or_path), [&] {
    try {
      hub::Hub hub(hub::Settings::from_environment(hub::process_environment(), std::nullopt),
                   reporter);
      using hub::ModelPart;
      folder = fetch_model(hub, repository,
                           {ModelPart::kConfig, ModelPart::kTokenizer, ModelPart::kWeights})
                   .folder;
    } catch (const hub::HubError& error) {
      throw hub::HubError(error.failure(), cat(error.what(), hub::local_hint(name_or_path)));
    }
    return 0;
  });
  return folder;
}

}  // namespace automodel::recipes
