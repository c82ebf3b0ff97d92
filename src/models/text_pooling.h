#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace automodel::models {

/// The key of config.json, and of recipes' `model`, that names a TextPooling.
inline constexpr const char* kPoolingKey = "pooling";

/// How the last hidden states of a text's tokens become one vector.
enum class TextPooling {
  kMean,   ///< "avg", "mean"
  kSum,    ///< "weighted_avg"
  kFirst,  ///< "cls": of the first token
  kLast    ///< "last": of the last token
};

/// The kind that a name of upstream's means; nullopt for other names.
std::optional<TextPooling> parse_text_pooling(std::string_view name);

/// What is wrong with a name that parse_text_pooling() does not know, and what would be right.
std::string text_pooling_problem(const std::string& name);

/// Upstream's name, as config.json has it.
std::string_view text_pooling_name(TextPooling pooling);

}  // namespace automodel::models
