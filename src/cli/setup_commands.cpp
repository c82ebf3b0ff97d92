#include "cli/setup_commands.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "cli/completion.h"
#include "recipes/read/recipe_schema.h"
#include "setup/doctor.h"
#include "setup/draft.h"
#include "setup/shipped_recipes.h"

namespace automodel::cli {

namespace {

void add_ls(CLI::App& app, int& status) {
  struct Options {
    std::vector<std::string> words;
    bool is_json = false;
  };
  auto* command = app.add_subcommand("ls", "the recipes that come with the program");
  const auto options = std::make_shared<Options>();
  command
      ->add_option("words", options->words,
                   "list those in whose description all of these words occur")
      ->type_name("WORD");
  command->add_flag("--json", options->is_json, "print JSON, with paths and descriptions");
  command->callback(
      [options, &status] { status = setup::list_shipped(options->words, options->is_json); });
}

void add_cp(CLI::App& app, int& status) {
  struct Options {
    std::string name, destination;
  };
  auto* command = app.add_subcommand("cp", "copy a recipe that comes with the program");
  const auto options = std::make_shared<Options>();
  command->add_option("name", options->name, "as `automodel ls` shows it")
      ->required()
      ->type_name("NAME");
  command
      ->add_option("destination", options->destination,
                   "a new file, or a folder (default: the current one)")
      ->type_name("DEST");
  command->footer("Relative paths of files that come with the program become absolute.");
  command->callback(
      [options, &status] { status = setup::copy_shipped(options->name, options->destination); });
}

void add_new(CLI::App& app, int& status) {
  auto* command = app.add_subcommand("new", "write a recipe for a model and data of yours");
  const auto request = std::make_shared<setup::DraftRequest>();
  command->add_option("--task", request->task, "what the recipe is for")
      ->check(CLI::IsMember(setup::draft_tasks()));
  command->add_option("--model", request->model, "folder of a model, or its name on the hub");
  command->add_option("--data", request->data,
                      "file or folder of rows, text file, prefix of token files, or a data set of "
                      "the hub");
  command->add_option("--columns", request->columns,
                      "columns of the data where their names are not the usual ones: "
                      "question=NAME,answer=NAME[,context=NAME], text=NAME, or "
                      "text=NAME,label=NAME[,pair=NAME]");
  command->add_option("--teacher", request->teacher, "model to distil from");
  command->add_option("--tokenizer", request->tokenizer,
                      "folder with tokenizer.json (default: the model's)");
  command->add_option("--nproc", request->num_ranks, "ranks of the run (default 1)");
  command->add_option("-o,--output", request->output, "file to write (default recipe.yaml)");
  command->footer("On a terminal, what is missing is asked for.");
  command->callback([request, &status] { status = setup::run_new(*request); });
}

void add_doctor(CLI::App& app, int& status) {
  auto* command = app.add_subcommand("doctor", "what this machine has and lacks for training");
  const auto options = std::make_shared<setup::DoctorOptions>();
  command->add_flag("--offline", options->is_offline, "do not ask the hub");
  command->add_flag("--json", options->is_json, "print JSON");
  command->footer("Exit status 4 when nothing can be trained here.");
  command->callback([options, &status] { status = setup::run_doctor(*options); });
}

void add_completion(CLI::App& app, int& status) {
  auto* command = app.add_subcommand("completion", "print what completes command lines in a shell");
  const auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "the shell; json: all commands and options, for other uses")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish", "json"}));
  command->footer(
      "bash: automodel completion bash > ~/.local/share/bash-completion/completions/automodel\n"
      "zsh:  automodel completion zsh > a folder of $fpath/_automodel\n"
      "fish: automodel completion fish > ~/.config/fish/completions/automodel.fish");
  command->callback([shell, &app, &status] {
    CompletionWords words{.commands = describe_commands(app),
                          .keys = dotted_keys(recipes::recipe_schema())};
    for (const auto& recipe : setup::find_shipped(setup::shipped_folder())) {
      words.recipes.push_back(recipe.name);
    }
    std::cout << completion_script(*shell, words);
    status = 0;
  });
}

}  // namespace

void add_setup_commands(CLI::App& app, int& status) {
  add_ls(app, status);
  add_cp(app, status);
  add_new(app, status);
  add_doctor(app, status);
  add_completion(app, status);
}

}  // namespace automodel::cli
