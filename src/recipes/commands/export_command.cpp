#include "recipes/commands/export_command.h"

#include <filesystem>
#include <iostream>

#include "checkpoint/hf_export.h"
#include "checkpoint/sharded.h"
#include "checkpoint/state_files.h"
#include "config/load.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "recipes/build/build_model.h"
#include "recipes/read/hub_inputs.h"
#include "recipes/run/checkpoint_writer.h"

namespace automodel::recipes {

namespace {

class ConsoleWarnings final : public Reporter {
 public:
  void info(std::string_view) override {}
  void warning(std::string_view text) override { std::cerr << text << "\n"; }
  void error(std::string_view text) override { std::cerr << text << "\n"; }
};

/// The folder of a checkpoint's shards.
std::string model_folder_of(const std::string& path) {
  const std::string model = path_join(path, "model");
  if (path_exists(checkpoint::recipe_path(path)) && is_directory(model)) return model;
  for (const char* name : {"LATEST", "LOWEST_VAL"}) {
    if (!path_exists(path_join(path, name))) continue;
    throw UserError(cat(path, " holds checkpoints and is none: name one of them, e.g. ",
                        path_join(path, name)));
  }
  throw UserError(cat(path, is_directory(path) ? " is no checkpoint: there is no config.yaml in it"
                                               : ": there is no such folder"));
}

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

}  // namespace

int run_export_command(const std::string& path, const std::string& out_path) {
  const std::string model_folder = model_folder_of(path);
  // Folders on the way are made, after which "new/../there" would be there.
  const std::string out = std::filesystem::weakly_canonical(out_path).string();
  if (path_exists(out_path) || path_exists(out)) {
    throw InputError(cat(out_path, " is there already: name a folder that is not"));
  }
  ConsoleWarnings warnings;
  const Recipe recipe = read_kept_recipe(path, warnings);
  if (recipe.peft) {
    throw UserError(cat(model_folder, " is an adapter, which PEFT reads as it is; for a whole ",
                        "model: automodel merge-lora ", recipe.model.source, " ", model_folder, " ",
                        out_path));
  }
  const auto trained = checkpoint::ShardedFolder::open(model_folder);
  const auto model = build_model(recipe, at::kFloat);
  checkpoint::save_hf_folder(
      out, trained, export_of(recipe, model->hf_config(), model->kept_prefixes(), warnings));
  std::cout << cat(out_path, ": ", trained.tensors().size(), " tensors of ", path, "\n");
  return 0;
}

}  // namespace automodel::recipes
