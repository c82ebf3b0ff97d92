#include "models/families/gpt_kind.h"

#include "core/text.h"

namespace automodel::models::decoder {

DecoderConfig read_gpt_kind(ConfigReader& reader, const GptDefaults& defaults) {
  DecoderConfig config;
  config.vocab_size = reader.size("vocab_size");
  config.hidden_size = reader.size(defaults.hidden_size);
  config.intermediate_size = reader.size(defaults.intermediate_size, 4 * config.hidden_size);
  config.layers.resize(static_cast<size_t>(
      checked_layers(reader, defaults.num_layers, reader.size(defaults.num_layers))));
  config.num_heads = reader.size(defaults.num_heads);
  config.num_kv_heads = config.num_heads;
  config.head_dim = config.hidden_size / config.num_heads;
  if (config.hidden_size % config.num_heads != 0) {
    reader.problem(cat(defaults.num_heads, " ", config.num_heads, " does not divide ",
                       defaults.hidden_size, " ", config.hidden_size));
  }
  const std::string_view positions =
      defaults.positions == "max_position_embeddings"
          ? defaults.positions
          : either(reader, defaults.positions, "max_position_embeddings");
  config.max_positions = reader.size(positions, defaults.max_positions);
  check_causal(reader);
  config.norm = NormKind::kLayer;
  config.norm_eps = reader.not_negative("layer_norm_epsilon", 1e-5);
  config.activation = reader.activation("activation_function", defaults.activation);
  config.is_mlp_gated = false;
  config.is_head_tied = reader.flag("tie_word_embeddings", defaults.is_head_tied);
  config.embedding_dropout = reader.probability(defaults.embedding_dropout, defaults.dropout);
  config.residual_dropout = reader.probability(defaults.residual_dropout, defaults.dropout);
  config.attention_dropout = reader.probability(defaults.attention_dropout, defaults.dropout);
  config.initializer_range = reader.number("initializer_range", 0.02);
  return config;
}

}  // namespace automodel::models::decoder
