#pragma once

#include <string>
#include <string_view>

#include "config/node.h"

namespace automodel::config {

/// True when a key names a secret: one of its words is password, secret, token, apikey, auth or
/// authorization, or two adjacent words are api key. Whole words count: `tokenizer`,
/// `num_label_tokens`, `author` and a tokenizer's special tokens (`eos_token`) are not secrets.
bool is_secret_key(std::string_view key);

/// Whether a key below a node names a secret.
bool holds_secret(const Node& node);

/// What stands for the text under such a key.
inline constexpr const char* kHiddenText = "******";

struct PrintOptions {
  bool has_secrets_hidden = true;  ///< texts under a secret key become ******
  /// Whether `${NAME}` is replaced by its value from the environment, except under a secret key
  /// while secrets are hidden.
  bool has_values = false;
};

/// Block style YAML in the order of the tree, as PyYAML writes it with default_flow_style=False.
/// Scalars that were read are written as they were (`${HF_TOKEN}` stays a placeholder; a value from
/// the environment is written only when asked for). Without hidden secrets the text loads to the
/// same values.
std::string to_yaml(const Node& node, const PrintOptions& options = {});

}  // namespace automodel::config
