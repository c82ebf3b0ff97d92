#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "cli/commands.h"
#include "core/error.h"

namespace automodel::cli {

namespace {

constexpr const char* kDescription =
    "automodel trains Hugging Face models from YAML recipes.\n"
    "\n"
    "  automodel run recipe.yaml                          train\n"
    "  automodel run recipe.yaml --optimizer.lr=1e-5      change a value of the recipe\n"
    "  automodel run recipe.yaml --nproc-per-node 4       four ranks on this machine\n"
    "  automodel check recipe.yaml --world-size 8         find mistakes without training\n"
    "  automodel plan recipe.yaml --world-size 64         bytes on every rank, without weights\n"
    "  automodel explain step_scheduler.global_batch_size what a key means\n"
    "\n"
    "Under torchrun, srun or mpirun, start `automodel run recipe.yaml` once per rank.";

constexpr const char* kFooter =
    "\nExit status: 0 done; 1 a bug in automodel; 2 wrong recipe or arguments; 3 wrong data, "
    "weights or\n"
    "checkpoint; 4 a rank failed; 5 non-finite loss or gradient; 6 right, but not in this "
    "version;\n"
    "75 saved after a preemption signal, start again to continue; 128+n killed by signal n.";

constexpr const char* kPlanFooter =
    "Prints the mesh and its groups, the units that are gathered and freed together, what a rank "
    "holds of\n"
    "them (parameters, gradients, optimizer state), what comes on top at the fullest moment of a "
    "step, and\n"
    "the collectives of a step. Sizes of state are exact; activations are those of the device's "
    "kernels\n"
    "with every token labelled. With --device-memory the plan says whether it fits, the program's "
    "own\n"
    "memory included, and what changes of the recipe would make of it. Reads\n"
    "the recipe and the model's config.json; weights, tokenizers and data may be elsewhere. Status "
    "6: the\n"
    "plan is printed, and the run would need what this version does not have.\n\n";

/// `automodel recipe.yaml ...` is `automodel run recipe.yaml ...`.
void insert_default_command(std::vector<std::string>& arguments) {
  if (arguments.empty()) return;
  const std::string& first = arguments[0];
  const bool is_recipe = first.ends_with(".yaml") || first.ends_with(".yml");
  if (is_recipe || first == "-c" || first == "--config") {
    arguments.insert(arguments.begin(), "run");
  }
}

/// Refuses what is neither a command nor an option.
void check_command_name(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  const bool is_known = std::find(names.begin(), names.end(), word) != names.end();
  if (is_known || word.starts_with("-")) return;
  throw UserError(cat("unknown command '", word, "'", did_you_mean(word, names),
                      "; commands: ", join(names, ", "), "; or give a recipe (.yaml)"));
}

/// Options of `run` and `check` that stand among a recipe's overrides.
void add_recipe_arguments(CLI::App& command, RecipeArguments& recipe) {
  command.add_option("recipe", recipe.path, "the recipe (YAML)")->type_name("RECIPE");
  command.add_option("-c,--config", recipe.config, "the same, as an option")->type_name("RECIPE");
  command.allow_extras();
  command.footer(
      "Any other argument changes the recipe: --a.b.c=value, --a.b.c value, a.b.c=value; --a.b.c "
      "alone sets true, the value none deletes a key.");
}

void take_overrides(const CLI::App& command, RecipeArguments& recipe) {
  recipe.overrides = command.remaining();
  if (!recipe.config.empty()) {
    if (!recipe.path.empty()) {
      recipe.overrides.insert(recipe.overrides.begin(), recipe.path);
    }
    recipe.path = recipe.config;
  }
  if (recipe.path.empty()) throw UserError("which recipe? automodel run RECIPE.yaml");
}

int dispatch(std::vector<std::string> arguments) {
  insert_default_command(arguments);
  CLI::App app(kDescription, "automodel");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.set_version_flag("--version", version_text());

  RunArguments run;
  CLI::App* run_command = app.add_subcommand("run", "train what a recipe describes");
  add_recipe_arguments(*run_command, run.recipe);
  run_command->add_option("--nproc-per-node,--nproc_per_node", run.num_local_ranks,
                          "ranks to start on this machine (default 1)");
  run_command->add_option("--device", run.device, "cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  run_command->add_option("--trace", run.trace_path, "write a Chrome trace to this file");
  run_command->add_option("--log-file", run.log_path, "append the lines of all ranks to this file");

  CheckArguments check;
  CLI::App* check_command =
      app.add_subcommand("check", "everything that can be known before training");
  add_recipe_arguments(*check_command, check.recipe);
  check_command->add_option("--world-size", check.world_size,
                            "ranks of the run (default: the fewest that the recipe fits)");

  PlanArguments plan;
  CLI::App* plan_command =
      app.add_subcommand("plan", "memory and collectives of a run, without weights or processes");
  add_recipe_arguments(*plan_command, plan.recipe);
  plan_command->add_option("--world-size", plan.world_size,
                           "ranks of the run (default: the fewest that the recipe fits)");
  plan_command->add_option("--sequence-length", plan.sequence_length,
                           "tokens of a sequence (default: the dataset's seq_len or seq_length, "
                           "else the model's positions, at most 2048)");
  plan_command->add_option(
      "--device-memory", plan.device_memory,
      "memory of a rank's device (80GiB, h100, ...): whether the run fits, and "
      "what would help");
  plan_command
      ->add_option("--device", plan.device,
                   "what the ranks compute on (default: cuda with --device-memory or for a "
                   "recipe of nccl, else cpu)")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  plan_command->add_flag("--json", plan.is_json, "print JSON with exact numbers");
  plan_command->footer(cat(kPlanFooter, plan_command->get_footer()));

  CLI::App* schema_command =
      app.add_subcommand("schema", "print the JSON Schema of recipes (for editors)");

  std::string key;
  CLI::App* explain_command =
      app.add_subcommand("explain", "what a key of a recipe means, its default and range");
  explain_command->add_option("key", key, "dotted key, e.g. step_scheduler.max_steps")->required();

  TokenizeArguments tokenize;
  CLI::App* tokenize_command = app.add_subcommand(
      "tokenize", "ids of texts: JSON lines with `text` in, lines with `ids` and `decoded` out");
  tokenize_command->add_option("--tokenizer", tokenize.folder, "folder with tokenizer.json")
      ->required();
  tokenize_command->add_flag("--add-special-tokens", tokenize.adds_special_tokens,
                             "let the post-processor add BOS, EOS and the like");

  ParityArguments parity;
  CLI::App* parity_command = app.add_subcommand(
      "parity", "compare a model with reference logits, loss, gradients and training losses");
  parity_command->add_option("--model", parity.model, "Hugging Face folder")->required();
  parity_command->add_option("--reference", parity.reference, "safetensors file")->required();
  parity_command->add_option("--tolerance-logits", parity.tolerance_logits,
                             "largest absolute difference of a logit");
  parity_command->add_option("--tolerance-loss", parity.tolerance_loss,
                             "largest relative difference of a loss");
  parity_command->add_option("--tolerance-grad", parity.tolerance_grad,
                             "largest relative L2 difference of a gradient");
  parity_command
      ->add_option("--kernels", parity.kernels,
                   "fused: what a run on this CPU takes; plain: what a run on a device takes")
      ->check(CLI::IsMember({"fused", "plain"}));

  CLI::App* version_command = app.add_subcommand("version", "print the version");

  if (arguments.empty()) arguments.emplace_back("--help");
  check_command_name(app, arguments[0]);
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    app.parse(arguments);
  } catch (const CLI::CallForHelp& error) {
    return app.exit(error);
  } catch (const CLI::CallForVersion& error) {
    return app.exit(error);
  } catch (const CLI::ParseError& error) {
    app.exit(error);
    return static_cast<int>(ExitCode::kRecipe);
  }
  if (run_command->parsed()) {
    take_overrides(*run_command, run.recipe);
    return run_recipe(run);
  }
  if (check_command->parsed()) {
    take_overrides(*check_command, check.recipe);
    return check_recipe(check);
  }
  if (plan_command->parsed()) {
    take_overrides(*plan_command, plan.recipe);
    return plan_memory(plan);
  }
  if (schema_command->parsed()) return print_schema();
  if (explain_command->parsed()) return explain_key(key);
  if (tokenize_command->parsed()) return tokenize_lines(tokenize);
  if (parity_command->parsed()) return check_parity(parity);
  AM_CHECK(version_command->parsed());
  std::cout << version_text() << "\n";
  return 0;
}

}  // namespace

int run_command_line(std::vector<std::string> arguments) {
  try {
    return dispatch(std::move(arguments));
  } catch (const UserError& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::cerr << internal_error_text(error) << "\n";
    return static_cast<int>(ExitCode::kInternal);
  }
}

}  // namespace automodel::cli
