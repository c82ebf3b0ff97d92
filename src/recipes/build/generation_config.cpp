#include "recipes/build/generation_config.h"

#include <array>
#include <cmath>
#include <string_view>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"

namespace automodel::recipes {

namespace {

/// The folder's generation_config.json; an empty object where there is none.
Json generation_config(const std::string& folder) {
  const std::string path = path_join(folder, "generation_config.json");
  if (folder.empty() || !path_exists(path)) return Json::object();
  Json config = Json::parse_file(path);
  if (!config.is_object()) throw InputError(cat(path, ": an object is expected"));
  return config;
}

/// A key that changes what transformers writes, unless it has this value or none.
struct OtherKey {
  std::string_view name;
  double neutral;
  bool is_of_draws = false;  ///< acts where tokens are drawn
};

constexpr std::array<OtherKey, 23> kOtherKeys = {{{"num_beams", 1},
                                                  {"no_repeat_ngram_size", 0},
                                                  {"encoder_no_repeat_ngram_size", 0},
                                                  {"encoder_repetition_penalty", 1},
                                                  {"guidance_scale", 1},
                                                  {"min_length", 0},
                                                  {"min_new_tokens", 0},
                                                  {"bad_words_ids", 0},
                                                  {"sequence_bias", 0},
                                                  {"suppress_tokens", 0},
                                                  {"begin_suppress_tokens", 0},
                                                  {"forced_bos_token_id", -1},
                                                  {"forced_eos_token_id", -1},
                                                  {"exponential_decay_length_penalty", 0},
                                                  {"penalty_alpha", 0},
                                                  {"stop_strings", 0},
                                                  {"watermarking_config", 0},
                                                  {"dola_layers", 0},
                                                  {"token_healing", 0},
                                                  {"top_h", 1, true},
                                                  {"typical_p", 1, true},
                                                  {"epsilon_cutoff", 0, true},
                                                  {"eta_cutoff", 0, true}}};

bool is_neutral(const Json& value, double neutral) {
  if (value.is_null() || (value.is_bool() && !value.as_bool())) return true;
  if (value.is_array() || value.is_object()) return value.size() == 0;
  return value.is_number() && value.as_double() == neutral;
}

/// Takes a number that the file has.
template <typename Number>
void take(const Json& config, std::string_view name, Number& value) {
  const Json* const found = config.find(name);
  if (found == nullptr || found->is_null()) return;
  if (!found->is_number()) throw InputError(cat(name, " is a number, found ", found->dump()));
  const std::string fault = choice_fault(name, found->as_double());
  if (!fault.empty()) throw InputError(fault);
  value = static_cast<Number>(found->as_double());
}

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
  add_named(generation_config(folder), tokens);
  return tokens;
}

std::string choice_fault(std::string_view name, double value) {
  const auto unless = [&](bool is_right, const char* right) {
    return is_right ? std::string() : cat(name, " is ", value, ", right is ", right);
  };
  if (name == "top_k") {
    return unless(value >= 0 && value == std::floor(value) && value <= 1e9,
                  "a whole number from 0 (all tokens) to 1e9");
  }
  if (name == "top_p" || name == "min_p") {
    return unless(value >= 0 && value <= 1, "a number from 0 to 1");
  }
  return unless(value >= 1e-5 && value <= 1e5, "a number from 1e-5 to 1e5");
}

FolderChoice folder_choice(const std::string& folder, bool does_sample) {
  const Json config = generation_config(folder);
  FolderChoice found;
  models::TokenChoice& choice = found.choice;
  choice.does_sample = does_sample;
  choice.top_k = 50;  // transformers' default
  try {
    take(config, "repetition_penalty", choice.repetition_penalty);
    if (does_sample) {
      take(config, "temperature", choice.temperature);
      take(config, "top_k", choice.top_k);
      take(config, "top_p", choice.top_p);
      take(config, "min_p", choice.min_p);
    }
  } catch (const InputError& error) {
    throw InputError(cat(path_join(folder, "generation_config.json"), ": ", error.what()));
  }
  for (const OtherKey& other : kOtherKeys) {
    const Json* const value = config.find(other.name);
    if (value == nullptr || is_neutral(*value, other.neutral)) continue;
    if (other.is_of_draws && !does_sample) continue;
    found.without_effect.emplace_back(other.name);
  }
  return found;
}

}  // namespace automodel::recipes
