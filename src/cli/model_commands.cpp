#include "cli/model_commands.h"

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "cli/add_command.h"
#include "core/error.h"
#include "core/text.h"
#include "recipes/build/generation_config.h"
#include "recipes/commands/export_command.h"
#include "recipes/commands/export_parity.h"
#include "recipes/commands/generate_command.h"
#include "recipes/commands/merge_command.h"
#include "recipes/commands/parity_command.h"
#include "recipes/commands/terminal_progress.h"

namespace automodel::cli {

namespace {

class ParityCommand final {
 public:
  static constexpr const char* kName = "parity";
  static constexpr const char* kPurpose =
      "compare a model with reference logits, loss, gradients and training losses";

  explicit ParityCommand(CLI::App& command) {
    auto* model = command.add_option("--model", model_, "Hugging Face folder or name");
    auto* reference = command.add_option("--reference", reference_, "safetensors file");
    model->needs(reference);
    reference->needs(model);
    command
        .add_option(
            "--export", export_,
            "exported folder (CHECKPOINT/model/consolidated): compare its weights, logits and "
            "prompts with the checkpoint's")
        ->excludes(model);
    command.add_option("--tolerance-logits", options_.logits,
                       "largest absolute difference of a logit (default 1e-4)");
    command.add_option("--tolerance-loss", options_.loss,
                       "largest relative difference of a loss (default 1e-5)");
    command.add_option("--tolerance-grad", options_.grad,
                       "largest relative L2 difference of a gradient (default 1e-3)");
    command
        .add_option("--kernels", kernels_,
                    "fused: what a run takes; plain: operations without kernels of our own")
        ->check(CLI::IsMember({"fused", "plain"}));
    command.add_option("--device", device_, "cpu or cuda (the first device)")
        ->check(CLI::IsMember({"cpu", "cuda"}))
        ->excludes("--export");
  }

  int run() {
    if (!export_.empty()) {
      return recipes::with_terminal_progress("comparing",
                                             [&] { return recipes::run_export_parity(export_); });
    }
    if (model_.empty()) throw UserError("parity: give --model and --reference, or --export");
    options_.takes_plain_path = kernels_ == "plain";
    options_.is_on_device = device_ == "cuda";
    return recipes::with_terminal_progress(
        "comparing", [&] { return recipes::run_parity_command(model_, reference_, options_); });
  }

 private:
  std::string model_, reference_, export_;
  std::string kernels_ = "fused";
  std::string device_ = "cpu";
  recipes::ParityOptions options_;
};

class GenerateCommand final {
 public:
  static constexpr const char* kName = "generate";
  static constexpr const char* kPurpose = "what a trained model answers: one text for each prompt";

  explicit GenerateCommand(CLI::App& command) {
    command
        .add_option("model", model_,
                    "Hugging Face folder or name, an adapter's folder, or a run's checkpoint that "
                    "has one of them")
        ->required();
    command.add_option("prompt", options_.prompts, "messages of a user")->required();
    command.add_flag("--raw", options_.is_raw,
                     "prompts are texts to write on, without the tokenizer's chat template");
    command.add_option("--max-new-tokens", options_.max_new_tokens,
                       "most tokens of an answer (default 256)");
    command.add_option("--base", options_.base,
                       "the model under an adapter (default: the one that the adapter names)");
    command.add_flag("--sample", options_.does_sample,
                     "draw tokens, as the model's generation_config.json says");
    command.add_option("--temperature", options_.temperature,
                       "draw tokens, of probabilities softened by this (0: the most likely ones)");
    command.add_option("--top-k", options_.top_k, "draw among so many most likely tokens (0: all)");
    command.add_option("--top-p", options_.top_p,
                       "draw among the most likely tokens that have this probability together");
    command.add_option("--seed", options_.seed, "of what is drawn (default 42)");
    command.add_option("--device", device_, "cpu or cuda (the first device)")
        ->check(CLI::IsMember({"cpu", "cuda"}));
    command.footer("Unless tokens are drawn, the most likely one is taken each time; in float32.");
  }

  int run() {
    check_at_least_1("--max-new-tokens", options_.max_new_tokens);
    if (options_.temperature != 0.0) {
      check_choice("--temperature", "temperature", options_.temperature);
    }
    if (options_.seed && *options_.seed < 0) {
      throw UserError(cat("--seed must be at least 0, found ", *options_.seed));
    }
    check_choice("--top-k", "top_k", options_.top_k);
    check_choice("--top-p", "top_p", options_.top_p);
    options_.is_on_device = device_ == "cuda";
    return recipes::run_generate_command(model_, options_);
  }

 private:
  template <typename Number>
  static void check_choice(const char* option, const char* name,
                           const std::optional<Number>& value) {
    const std::string fault =
        value ? recipes::choice_fault(name, static_cast<double>(*value)) : std::string();
    if (!fault.empty()) throw UserError(cat(option, ": ", fault));
  }

  std::string model_;
  std::string device_ = "cpu";
  recipes::GenerateOptions options_;
};

class MergeLoraCommand final {
 public:
  static constexpr const char* kName = "merge-lora";
  static constexpr const char* kPurpose =
      "write a model's folder with an adapter merged into its weights";

  explicit MergeLoraCommand(CLI::App& command) {
    command.add_option("base", base_, "Hugging Face folder or name of the base model")->required();
    command.add_option("adapter", adapter_, "adapter's folder, e.g. a checkpoint's model/")
        ->required();
    command.add_option("out", out_, "new folder for the merged model")->required();
  }

  int run() const {
    return recipes::with_terminal_progress(
        "merging", [&] { return recipes::run_merge_lora_command(base_, adapter_, out_); });
  }

 private:
  std::string base_, adapter_, out_;
};

class ExportCommand final {
 public:
  static constexpr const char* kName = "export";
  static constexpr const char* kPurpose = "write a checkpoint as a Hugging Face folder";

  explicit ExportCommand(CLI::App& command) {
    command
        .add_option("checkpoint", checkpoint_,
                    "a run's checkpoint, e.g. checkpoints/run/LOWEST_VAL")
        ->required();
    command.add_option("out", out_, "new folder for the model")->required();
  }

  int run() const {
    return recipes::with_terminal_progress(
        "exporting", [&] { return recipes::run_export_command(checkpoint_, out_); });
  }

 private:
  std::string checkpoint_, out_;
};

}  // namespace

void add_model_commands(CLI::App& app, int& status) {
  add_command<ParityCommand>(app, status);
  add_command<GenerateCommand>(app, status);
  add_command<MergeLoraCommand>(app, status);
  add_command<ExportCommand>(app, status);
}

}  // namespace automodel::cli
