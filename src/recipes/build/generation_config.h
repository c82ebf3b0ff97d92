#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "models/token_choice.h"

namespace automodel::recipes {

/// The tokens behind which a model writes no more: the tokenizer's, if it has one, and those that
/// the model's configuration and the generation_config.json of its folder name. "": no folder.
/// Throws InputError for a generation_config.json that is no JSON.
std::vector<int64_t> end_tokens(std::optional<int64_t> of_tokenizer, const Json& hf_config,
                                const std::string& folder);

/// How a model's folder says that tokens are chosen.
struct FolderChoice {
  models::TokenChoice choice;
  /// Keys of the file that change what transformers writes, and not what is written here.
  std::vector<std::string> without_effect;
};

/// Reads a folder's generation_config.json, with transformers' values for what it leaves out. ""
/// and a folder without the file: those alone. Unless tokens are drawn, only what acts then is
/// read. Throws InputError for a value that is none.
FolderChoice folder_choice(const std::string& folder, bool does_sample);

/// What is wrong with a value of TokenChoice; "" if nothing is. `name`: its member's name.
std::string choice_fault(std::string_view name, double value);

}  // namespace automodel::recipes
