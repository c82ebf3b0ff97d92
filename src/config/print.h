#pragma once

#include <string>
#include <string_view>

#include "config/node.h"

namespace automodel::config {

/// True when a key names a secret: one of its words is password, secret, token, apikey, auth or
/// authorization, or two neighbours are api key. Exact about words: `tokenizer`,
/// `num_label_tokens`, `author` and the special tokens of a tokenizer (`eos_token`) are none.
bool is_secret_key(std::string_view key);

struct PrintOptions {
  bool has_secrets_hidden = true;  ///< texts under a secret key become ******
  /// Texts from the environment in place of their `${NAME}`, but for those under a secret key while
  /// secrets are hidden.
  bool has_values = false;
};

/// Block style YAML in the order of the tree, as PyYAML writes it with default_flow_style=False.
/// Scalars that were read are written as they were (`${HF_TOKEN}` stays a placeholder; a value from
/// the environment is written only when asked for). Without hidden secrets the text loads to the
/// same values.
std::string to_yaml(const Node& node, const PrintOptions& options = {});

}  // namespace automodel::config
