#include "models/families/encoder_kind.h"

#include "core/text.h"

namespace automodel::models::decoder {

namespace {

/// Findings for options that no released encoder of the kind has.
void refuse_encoder_options(ConfigReader& reader) {
  for (const char* key : {"is_decoder", "add_cross_attention"}) {
    if (reader.flag(key, false)) {
      reader.problem(cat(key, " true is not built in this version: this family is an encoder"));
    }
  }
  const std::string positions = reader.text("position_embedding_type", "absolute");
  if (positions != "absolute") {
    reader.problem(cat("position_embedding_type '", positions,
                       "' is not built in this version; 'absolute' is"));
  }
}

}  // namespace

DecoderConfig read_encoder_kind(ConfigReader& reader, const EncoderKind& kind) {
  DecoderConfig config;
  config.vocab_size = reader.size("vocab_size", kind.vocab_size);
  const EncoderKeys& keys = kind.keys;
  config.hidden_size = reader.size(keys.hidden, 768);
  config.intermediate_size = reader.size(keys.intermediate, 3072);
  config.layers.resize(static_cast<size_t>(
      checked_layers(reader, keys.layers, reader.size(keys.layers, kind.num_layers))));
  config.num_heads = reader.size(keys.heads, 12);
  config.num_kv_heads = config.num_heads;
  config.head_dim = config.hidden_size / config.num_heads;
  if (config.hidden_size % config.num_heads != 0) {
    reader.problem(cat(keys.heads, " ", config.num_heads, " does not divide ", keys.hidden, " ",
                       config.hidden_size));
    config.head_dim = 1;
  }
  config.padding_idx = static_cast<int64_t>(
      reader.not_negative("pad_token_id", static_cast<double>(kind.pad_token_id)));
  if (config.padding_idx >= config.vocab_size) {
    reader.problem(
        cat("pad_token_id ", config.padding_idx, " is outside vocab_size ", config.vocab_size));
  }
  config.max_positions = reader.size("max_position_embeddings", 512);
  if (kind.counts_from_pad) {
    config.first_position = config.padding_idx + 1;
    config.is_pad_unplaced = true;
    config.max_positions -= config.first_position;
    if (config.max_positions < 1) {
      reader.problem(cat("max_position_embeddings is ",
                         config.first_position + config.max_positions,
                         ", and positions begin behind pad_token_id ", config.padding_idx));
      config.max_positions = 1;
    }
  }
  config.num_token_types = reader.size("type_vocab_size", 2);
  refuse_encoder_options(reader);
  config.is_causal = false;
  config.norm = NormKind::kLayer;
  config.norm_placement = NormPlacement::kBehindSums;
  config.norm_eps = reader.not_negative("layer_norm_eps", 1e-12);
  config.has_placed_norm = true;
  config.activation = reader.activation(keys.activation, "gelu");
  config.is_mlp_gated = false;
  config.has_qkv_bias = config.has_attention_output_bias = config.has_mlp_bias = true;
  config.has_learned_positions = true;
  config.residual_dropout = reader.probability(keys.dropout, 0.1);
  config.embedding_dropout = config.residual_dropout;
  config.attention_dropout = reader.probability(keys.attention_dropout, 0.1);
  config.pooler = {.is_of_head = !kind.has_pooler,
                   .drops_input = !kind.has_pooler,
                   .dropout = reader.probability("classifier_dropout", config.residual_dropout)};
  config.initializer_range = reader.number("initializer_range", 0.02);
  return config;
}

DecoderConfig read_roberta_kind(ConfigReader& reader) {
  return read_encoder_kind(
      reader,
      {.vocab_size = 50265, .pad_token_id = 1, .counts_from_pad = true, .has_pooler = false});
}

double encoder_flops(const DecoderConfig& config, double num_sequences, double length) {
  const auto layers = static_cast<double>(config.num_layers());
  const auto hidden = static_cast<double>(config.hidden_size);
  const double attention = length / (6 * hidden);
  const double head = static_cast<double>(config.head_rows()) / (12 * hidden * layers);
  return 72 * num_sequences * layers * length * hidden * hidden * (1 + attention + head);
}

}  // namespace automodel::models::decoder
