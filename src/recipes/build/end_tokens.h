#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"

namespace automodel::recipes {

/// The tokens behind which a model writes no more: the tokenizer's, if it has one, and those that
/// the model's configuration and the generation_config.json of its folder name. "": no folder.
/// Throws InputError for a generation_config.json that is no JSON.
std::vector<int64_t> end_tokens(std::optional<int64_t> of_tokenizer, const Json& hf_config,
                                const std::string& folder);

}  // namespace automodel::recipes
