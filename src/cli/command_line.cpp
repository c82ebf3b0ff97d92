#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>

#include "cli/add_command.h"
#include "cli/model_commands.h"
#include "cli/render_chat.h"
#include "cli/report_commands.h"
#include "cli/setup_commands.h"
#include "cli/spaced_values.h"
#include "cli/tokenize.h"
#include "core/error.h"
#include "core/json.h"
#include "core/system_limits.h"
#include "recipes/check/check_recipe.h"
#include "recipes/commands/inspect_data.h"
#include "recipes/commands/terminal_progress.h"
#include "recipes/plan/plan_command.h"
#include "recipes/read/recipe_schema.h"
#include "recipes/run/run_recipe.h"

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
    "\nExit status: 0 done; 1 a bug in automodel; 2 wrong recipe or arguments; 3 wrong data,\n"
    "weights or checkpoint; 4 a rank failed; 5 non-finite loss or gradient, or spikes that do not\n"
    "end; 6 right, but not in this version; 75 saved after a preemption signal, start again to\n"
    "continue; 128+n killed by signal n.";

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

/// `automodel help run` is `automodel run --help`.
void turn_help_into_option(std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0] != "help") return;
  arguments.erase(arguments.begin());
  arguments.insert(arguments.begin() + (arguments.empty() ? 0 : 1), "--help");
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

/// A recipe as a command line names it. The arguments that no option takes change its values.
class RecipeArguments final {
 public:
  explicit RecipeArguments(CLI::App& command) : command_(command) {
    command.add_option("recipe", path_, "the recipe (YAML)")->type_name("RECIPE");
    command.add_option("-c,--config", config_, "the same, as an option")->type_name("RECIPE");
    command.allow_extras();
    command.footer(
        "Any other argument changes the recipe: --a.b.c=value, --a.b.c value, a.b.c=value; "
        "--a.b.c alone sets true, the value none sets none (null), which takes a section away.");
  }

  /// -c wins over the positional argument, which changes a value then.
  std::string path() const {
    const std::string& path = config_.empty() ? path_ : config_;
    if (path.empty()) {
      throw UserError(cat("which recipe? automodel ", command_.get_name(),
                          " RECIPE.yaml; automodel ls lists those that come with the program"));
    }
    return path;
  }
  std::vector<std::string> overrides() const {
    std::vector<std::string> overrides = command_.remaining();
    for (const std::string& argument : overrides) {
      refuse_option_of_another(argument);
      refuse_misspelt_option(argument);
    }
    if (!config_.empty() && !path_.empty()) overrides.insert(overrides.begin(), path_);
    return overrides;
  }

 private:
  /// A recipe's key that is no section: seed.
  static bool is_plain_key(const std::string& name) {
    const Json schema = recipes::recipe_schema();
    const Json* const key = schema.at("properties").find(name);
    return key != nullptr && !key->contains("properties");
  }

  /// An option that only other commands have is a mistake, unless it is a key of recipes, or its
  /// value is a section's.
  void refuse_option_of_another(const std::string& argument) const {
    const std::string name = argument.substr(0, argument.find('='));
    if (!name.starts_with("--") || argument.substr(name.size()).starts_with("={")) return;
    std::vector<std::string> having;
    for (const CLI::App* other : command_.get_parent()->get_subcommands({})) {
      if (other->get_option_no_throw(name) != nullptr) having.push_back(other->get_name());
    }
    if (having.empty() || is_plain_key(name.substr(2))) return;
    const bool counts_ranks =
        name.starts_with("--nproc") && command_.get_option_no_throw("--world-size") != nullptr;
    throw UserError(cat("automodel ", command_.get_name(), " has no option ", name, "; ",
                        join(having, ", "), having.size() == 1 ? " has it" : " have it",
                        counts_ranks ? "; here --world-size says the number of ranks" : ""));
  }

  /// A key has a dot, but for a few that are none of these: what is near an option is meant for it.
  void refuse_misspelt_option(const std::string& argument) const {
    const std::string name = argument.substr(0, argument.find('='));
    if (!name.starts_with("--") || name.find('.') != std::string::npos) return;
    std::vector<std::string> known;
    for (const CLI::Option* option : command_.get_options()) {
      known.insert(known.end(), option->get_lnames().begin(), option->get_lnames().end());
    }
    const auto match = closest_match(name.substr(2), known);
    if (!match) return;
    throw UserError(cat("automodel ", command_.get_name(), " has no option ", name,
                        "; did you mean --", *match, "?"));
  }

  const CLI::App& command_;
  std::string path_, config_;
};

constexpr const char* kWorldSizeText =
    "ranks of the run (default: the fewest that the recipe fits)";

class RunCommand final {
 public:
  static constexpr const char* kName = "run";
  static constexpr const char* kPurpose = "train what a recipe describes";

  RunCommand(CLI::App& command, const std::vector<std::string>& typed) : recipe_(command) {
    options_.command = typed;
    command.add_option("--nproc-per-node,--nproc_per_node", options_.num_local_ranks,
                       "ranks to start on this machine (default 1)");
    command
        .add_option("--device", options_.device,
                    "cpu or cuda (default: cuda for a recipe of nccl where there is a GPU)")
        ->check(CLI::IsMember({"cpu", "cuda"}));
    command.add_option("--trace", options_.trace_path, "write a Chrome trace to this file");
    command.add_option("--log-file", options_.log_path,
                       "append the lines of all ranks to this file");
    command.add_flag("--timings", options_.shows_timings,
                     "say where the time to the end of the first step went, and what a step takes");
  }

  int run() {
    options_.recipe_path = recipe_.path();
    options_.overrides = recipe_.overrides();
    options_.version = AUTOMODEL_VERSION;
    return recipes::run_recipe(options_);
  }

 private:
  RecipeArguments recipe_;
  recipes::RunOptions options_;
};

class CheckCommand final {
 public:
  static constexpr const char* kName = "check";
  static constexpr const char* kPurpose = "everything that can be known before training";

  explicit CheckCommand(CLI::App& command) : recipe_(command) {
    command.add_option("--world-size", world_size_, kWorldSizeText);
  }

  int run() const {
    const std::string path = recipe_.path();
    check_at_least_1("--world-size", world_size_);
    return recipes::check_recipe(path, recipe_.overrides(), world_size_);
  }

 private:
  RecipeArguments recipe_;
  std::optional<int64_t> world_size_;
};

class PlanCommand final {
 public:
  static constexpr const char* kName = "plan";
  static constexpr const char* kPurpose =
      "memory and collectives of a run, without weights or processes";

  explicit PlanCommand(CLI::App& command) : recipe_(command) {
    command.add_option("--world-size", request_.world_size, kWorldSizeText);
    command.add_option("--sequence-length", request_.sequence_length,
                       "tokens of a sequence (default: the dataset's seq_len or seq_length, else "
                       "the model's positions, at most 2048)");
    command.add_option("--device-memory", request_.device_memory,
                       "memory of a rank's device (80GiB, h100, ...): whether the run fits, and "
                       "what would help");
    command
        .add_option("--device", request_.device,
                    "what the ranks compute on (default: cuda with --device-memory or for a "
                    "recipe of nccl, else cpu)")
        ->check(CLI::IsMember({"cpu", "cuda"}));
    command.add_flag("--json", request_.is_json, "print JSON with exact numbers");
    command.footer(cat(kPlanFooter, command.get_footer()));
  }

  int run() {
    request_.recipe_path = recipe_.path();
    request_.overrides = recipe_.overrides();
    check_at_least_1("--world-size", request_.world_size);
    check_at_least_1("--sequence-length", request_.sequence_length);
    return recipes::run_plan_command(request_);
  }

 private:
  RecipeArguments recipe_;
  recipes::PlanRequest request_;
};

class InspectDataCommand final {
 public:
  static constexpr const char* kName = "inspect-data";
  static constexpr const char* kPurpose =
      "samples of a recipe's dataset as they are trained on, and what is odd about them";

  explicit InspectDataCommand(CLI::App& command) : recipe_(command) {
    command.add_option("--samples", options_.num_samples, "samples to show (default 3)");
    command.add_option("--html", options_.html, "write one page with them to this file instead");
    command
        .add_flag("--json", options_.as_json,
                  "print token ids and labels instead, a line of JSON for each sample")
        ->excludes("--html");
  }

  int run() const {
    const std::string path = recipe_.path();
    check_at_least_1("--samples", options_.num_samples);
    return recipes::with_terminal_progress("reading the data", [&] {
      return recipes::inspect_data(path, recipe_.overrides(), options_);
    });
  }

 private:
  RecipeArguments recipe_;
  recipes::InspectOptions options_;
};

class SchemaCommand final {
 public:
  static constexpr const char* kName = "schema";
  static constexpr const char* kPurpose = "print the JSON Schema of recipes (for editors)";

  explicit SchemaCommand(CLI::App& command) {}

  int run() const {
    std::cout << recipes::recipe_schema().dump(2) << "\n";
    return 0;
  }
};

class ExplainCommand final {
 public:
  static constexpr const char* kName = "explain";
  static constexpr const char* kPurpose = "what a key of a recipe means, its default and range";

  explicit ExplainCommand(CLI::App& command) {
    command.add_option("key", key_, "dotted key, e.g. step_scheduler.max_steps")->required();
  }

  int run() const {
    std::cout << recipes::explain(key_) << "\n";
    return 0;
  }

 private:
  std::string key_;
};

class TokenizeCommand final {
 public:
  static constexpr const char* kName = "tokenize";
  static constexpr const char* kPurpose =
      "ids of texts: JSON lines with `text` in, lines with `ids` and `decoded` out";

  explicit TokenizeCommand(CLI::App& command) {
    command.add_option("--tokenizer", folder_, "folder with tokenizer.json")->required();
    command.add_flag("--add-special-tokens", options_.adds_special_tokens,
                     "let the post-processor add BOS, EOS and the like");
    command.add_flag("--plain", options_.is_plain, "every line is a text, not JSON");
    command.add_option("--bin", bin_,
                       "file to write for NanogptDataset (magic 278895051), in place of lines: the "
                       "texts' tokens one after another, each text with BOS in front");
  }

  int run() const {
    if (bin_.empty()) return tokenize_lines(folder_, options_);
    return tokenize_to_bin(folder_, options_, bin_);
  }

 private:
  std::string folder_;
  std::string bin_;
  TokenizeOptions options_;
};

class RenderChatCommand final {
 public:
  static constexpr const char* kName = "render-chat";
  static constexpr const char* kPurpose =
      "texts of conversations: JSON lines with `messages` in, lines with `rendered` out";

  explicit RenderChatCommand(CLI::App& command) {
    command.add_option("--template,--tokenizer", path_,
                       "Jinja file, tokenizer_config.json, or a folder that has either (default: "
                       "every line's own string `template`)");
    command.add_option("--repeat", repeat_,
                       "render every line so often, and print the `seconds` of one");
    command.footer(
        "A line may hold messages, tools, documents, add_generation_prompt, bos_token, eos_token, "
        "now,\nand objects vars and kwargs with more variables. A line out has `generation`, the "
        "code points\n[begin, end) that generation blocks wrote, or `error`, `line` and "
        "`column`.");
  }

  int run() const { return render_chat_lines(path_, repeat_); }

 private:
  std::string path_;
  int64_t repeat_ = 1;
};

std::string version_text() {
  return cat("automodel ", AUTOMODEL_VERSION, " (LibTorch 2.11.0)");
}

class VersionCommand final {
 public:
  static constexpr const char* kName = "version";
  static constexpr const char* kPurpose = "print the version";

  explicit VersionCommand(CLI::App& command) {}

  int run() const {
    std::cout << version_text() << "\n";
    return 0;
  }
};

/// `typed`: what the caller wrote, the program's name first.
int dispatch(std::vector<std::string> arguments, const std::vector<std::string>& typed) {
  turn_help_into_option(arguments);
  CLI::App app(kDescription, "automodel");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.set_version_flag("--version", version_text());
  int status = 0;
  add_command<RunCommand>(app, status, typed);
  add_command<CheckCommand>(app, status);
  add_command<PlanCommand>(app, status);
  add_command<InspectDataCommand>(app, status);
  add_command<SchemaCommand>(app, status);
  add_command<ExplainCommand>(app, status);
  add_command<TokenizeCommand>(app, status);
  add_command<RenderChatCommand>(app, status);
  add_model_commands(app, status);
  add_setup_commands(app, status);
  add_report_commands(app, status);
  add_command<VersionCommand>(app, status);
  if (arguments.empty()) arguments.emplace_back("--help");
  check_command_name(app, arguments[0]);
  join_spaced_values(app, arguments);
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
  return status;
}

/// The status of a command that is done. Where some of its output could not be written, that is
/// said and is an error; a run's results are its checkpoints and records, not its output.
int status_after_output(int status, bool is_run) {
  std::cout.flush();
  const bool is_cut = !std::cout.good() || std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (!is_cut || status != 0) return status;
  std::cerr << "cannot write all of the output to standard output\n";
  return static_cast<int>(is_run ? ExitCode::kDone : ExitCode::kInput);
}

}  // namespace

int run_command_line(std::vector<std::string> arguments) {
  std::vector<std::string> typed = {"automodel"};
  typed.insert(typed.end(), arguments.begin(), arguments.end());
  insert_default_command(arguments);
  const bool is_run = !arguments.empty() && arguments[0] == RunCommand::kName;
  try {
    return status_after_output(dispatch(std::move(arguments), typed), is_run);
  } catch (const UserError& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    const std::optional<std::string> shortage = thread_shortage(error);
    std::cerr << shortage.value_or(internal_error_text(error)) << "\n";
    return static_cast<int>(shortage ? ExitCode::kRankFailed : ExitCode::kInternal);
  }
}

}  // namespace automodel::cli
