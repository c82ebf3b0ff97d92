#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "core/reporter.h"
#include "setup/draft_inputs.h"

namespace automodel::setup {

/// What a person wants a recipe for.
struct DraftRequest {
  std::string task;       ///< of draft_tasks()
  std::string model;      ///< folder, or name on the hub
  std::string data;       ///< file, folder, prefix of token files, or name on the hub
  std::string columns;    ///< of data with names of their own: see parse_columns()
  std::string teacher;    ///< of distillation
  std::string tokenizer;  ///< "": the model's
  int64_t num_ranks = 1;
  std::string output = "recipe.yaml";
};

/// pretrain, sft, chat, lora, qlora, distill, classify, embed, benchmark.
std::vector<std::string> draft_tasks();

/// What has been found out for a recipe.
struct DraftFacts {
  ModelFacts model;
  std::optional<ModelFacts> teacher;
  std::optional<DataFacts> data;  ///< absent: random tokens
  std::string tokenizer;          ///< "": the model's
  TokenizerFacts of_tokenizer;
};

/// The text of a recipe. Throws UserError when the task cannot be done with these data or this
/// model.
std::string draft_text(const DraftRequest& request, const DraftFacts& facts);

/// Asks on `out` for what a request lacks, and reads the answers, a line each. Throws UserError
/// when they end.
void ask_for_missing(DraftRequest& request, std::istream& in, std::ostream& out);

/// `automodel new`: writes a recipe that `automodel check` has nothing against. What is missing is
/// asked for on a terminal, and is an error elsewhere. Nothing is written after an error.
int run_new(DraftRequest request);

}  // namespace automodel::setup
