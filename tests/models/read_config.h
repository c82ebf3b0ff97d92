#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "core/text.h"
#include "models/catalog.h"
#include "models/causal_lm.h"
#include "models/decoder/decoder_model.h"
#include "support/temporary_directory.h"

namespace automodel::models {

inline Json config_of(const std::string& golden) {
  return Json::parse_file(test::source_file(cat("tests/golden/", golden, "/config.json")));
}

inline std::string problems_of(const Json& config) {
  return join(check_config(config), "\n");
}

inline const decoder::DecoderConfig& options_of(const CausalLM& model) {
  return dynamic_cast<const decoder::DecoderModel&>(model).config();
}

/// Each layer's attention: heads, heads of keys, window, rope.
inline std::string attention_of_layers(const Json& config) {
  const auto model = build_causal_lm(config, at::kFloat);
  const decoder::DecoderConfig& options = options_of(*model);
  std::vector<std::string> texts;
  for (const decoder::LayerOptions& layer : options.layers) {
    texts.push_back(cat(options.heads_of(layer), "/", options.kv_heads_of(layer), " ", layer.window,
                        " ", layer.rope));
  }
  return join(texts, ", ");
}

/// "e" for a layer of experts, "d" for a dense one.
inline std::string experts_of_layers(const Json& config) {
  const auto model = build_causal_lm(config, at::kFloat);
  std::string kinds;
  for (const auto& layer : options_of(*model).layers) kinds += layer.is_moe ? 'e' : 'd';
  return kinds;
}

}  // namespace automodel::models
