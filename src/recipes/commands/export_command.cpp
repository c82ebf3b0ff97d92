#include "recipes/commands/export_command.h"

#include <iostream>

#include "checkpoint/hf_export.h"
#include "checkpoint/sharded.h"
#include "checkpoint/state_files.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "loggers/console.h"
#include "recipes/build/build_model.h"
#include "recipes/commands/kept_recipe.h"
#include "recipes/run/checkpoint_writer.h"

namespace automodel::recipes {

namespace {

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

}  // namespace

int run_export_command(const std::string& path, const std::string& out_path) {
  const std::string model_folder = model_folder_of(path);
  const std::string out = checkpoint::new_folder(out_path);
  loggers::ConsoleReporter console(0, 1);
  const Recipe recipe = read_kept_recipe(path, console);
  if (recipe.peft) {
    throw UserError(cat(model_folder, " is an adapter, which PEFT reads as it is; for a whole ",
                        "model: automodel merge-lora ", recipe.model.source, " ", model_folder, " ",
                        out_path));
  }
  const auto trained = checkpoint::ShardedFolder::open(model_folder);
  const auto model = build_model(recipe, at::kFloat);
  checkpoint::save_hf_folder(
      out, trained, export_of(recipe, model->hf_config(), model->kept_prefixes(), console));
  std::cout << cat(out_path, ": ", trained.tensors().size(), " tensors of ", path, "\n");
  return 0;
}

}  // namespace automodel::recipes
