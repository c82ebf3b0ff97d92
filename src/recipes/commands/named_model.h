#pragma once

#include <string>
#include <string_view>

namespace automodel::recipes {

/// Where the model that a command line names is: a folder as it is; of a name on the hub its
/// snapshot in the cache, where what is missing is fetched first (config.json, tokenizer, weights).
/// Throws HubError for what the hub does not give.
std::string local_model(const std::string& name_or_path);

/// Writes "warning: TEXT" where a command's results are not.
void warn(std::string_view text);

}  // namespace automodel::recipes
