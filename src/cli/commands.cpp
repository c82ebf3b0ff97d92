#include "cli/commands.h"

#include <iostream>

#include "core/error.h"
#include "core/json.h"
#include "recipes/parity_command.h"
#include "recipes/plan_command.h"
#include "recipes/recipe.h"
#include "recipes/run_recipe.h"
#include "tokenizers/tokenizer.h"

namespace automodel::cli {

int run_recipe(const RunArguments& arguments) {
  recipes::RunOptions options;
  options.recipe_path = arguments.recipe.path;
  options.overrides = arguments.recipe.overrides;
  options.num_local_ranks = arguments.num_local_ranks;
  options.device = arguments.device;
  options.trace_path = arguments.trace_path;
  options.log_path = arguments.log_path;
  return recipes::run_recipe(options);
}

int check_recipe(const CheckArguments& arguments) {
  if (arguments.world_size && *arguments.world_size < 1) {
    throw UserError(cat("--world-size must be at least 1, found ", *arguments.world_size));
  }
  return recipes::check_recipe(arguments.recipe.path, arguments.recipe.overrides,
                               arguments.world_size);
}

int plan_memory(const PlanArguments& arguments) {
  const std::pair<const char*, std::optional<int64_t>> numbers[] = {
      {"--world-size", arguments.world_size}, {"--sequence-length", arguments.sequence_length}};
  for (const auto& [option, value] : numbers) {
    if (value && *value < 1) throw UserError(cat(option, " must be at least 1, found ", *value));
  }
  return recipes::run_plan_command({.recipe_path = arguments.recipe.path,
                                    .overrides = arguments.recipe.overrides,
                                    .world_size = arguments.world_size,
                                    .sequence_length = arguments.sequence_length,
                                    .device = arguments.device,
                                    .device_memory = arguments.device_memory,
                                    .is_json = arguments.is_json});
}

int print_schema() {
  std::cout << recipes::recipe_schema().dump(2) << "\n";
  return 0;
}

int explain_key(const std::string& key) {
  std::cout << recipes::explain(key) << "\n";
  return 0;
}

int tokenize_lines(const TokenizeArguments& arguments) {
  const auto tokenizer = tokenizers::Tokenizer::load(arguments.folder);
  std::ios::sync_with_stdio(false);
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    if (trim(line).empty()) continue;
    const std::string name = cat("line ", number);
    const Json object = Json::parse(line, name);
    const Json* text = object.find("text");
    if (text == nullptr || !text->is_string()) {
      throw InputError(cat(name, ": expected an object with a string `text`"));
    }
    const auto ids = tokenizer.encode(text->as_string(), arguments.adds_special_tokens);
    Json::Array values(ids.begin(), ids.end());
    Json out = Json::object();
    out["ids"] = Json(std::move(values));
    out["decoded"] = tokenizer.decode(ids, false);
    std::cout << out.dump() << "\n";
  }
  return 0;
}

int check_parity(const ParityArguments& arguments) {
  return recipes::run_parity_command(arguments.model, arguments.reference,
                                     {arguments.tolerance_logits, arguments.tolerance_loss,
                                      arguments.tolerance_grad, arguments.kernels == "plain"});
}

std::string version_text() {
  return cat("automodel ", AUTOMODEL_VERSION, " (LibTorch 2.11.0)");
}

}  // namespace automodel::cli
