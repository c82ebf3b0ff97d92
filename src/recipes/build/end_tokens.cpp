#include "recipes/build/end_tokens.h"

#include "core/file.h"

namespace automodel::recipes {

namespace {

/// Adds `eos_token_id`, a number or a list of them.
void add_named(const Json& config, std::vector<int64_t>& tokens) {
  const Json* const named = config.find("eos_token_id");
  if (named == nullptr) return;
  if (named->is_int()) tokens.push_back(named->as_int());
  if (!named->is_array()) return;
  for (const Json& token : named->as_array()) {
    if (token.is_int()) tokens.push_back(token.as_int());
  }
}

}  // namespace

std::vector<int64_t> end_tokens(std::optional<int64_t> of_tokenizer, const Json& hf_config,
                                const std::string& folder) {
  std::vector<int64_t> tokens;
  if (of_tokenizer) tokens.push_back(*of_tokenizer);
  add_named(hf_config, tokens);
  if (const Json* const text = hf_config.find("text_config")) add_named(*text, tokens);
  const std::string path = path_join(folder, "generation_config.json");
  if (!folder.empty() && path_exists(path)) add_named(Json::parse_file(path), tokens);
  return tokens;
}

}  // namespace automodel::recipes
