#include <cmath>

#include "core/text.h"
#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_gpt2(ConfigReader& reader) {
  DecoderConfig config;
  config.vocab_size = reader.size("vocab_size");
  config.hidden_size = reader.size("n_embd");
  config.intermediate_size = reader.size("n_inner", 4 * config.hidden_size);
  config.layers.resize(static_cast<size_t>(reader.size("n_layer")));
  config.num_heads = reader.size("n_head");
  config.num_kv_heads = config.num_heads;
  config.head_dim = config.hidden_size / config.num_heads;
  if (config.hidden_size % config.num_heads != 0) {
    reader.problem(
        cat("n_head ", config.num_heads, " does not divide n_embd ", config.hidden_size));
  }
  config.max_positions =
      reader.size(either(reader, "n_positions", "max_position_embeddings"), 1024);
  check_causal(reader);
  config.norm = NormKind::kLayer;
  config.norm_eps = reader.not_negative("layer_norm_epsilon", 1e-5);
  config.activation = reader.activation("activation_function", "gelu_new");
  config.is_mlp_gated = false;
  config.has_qkv_bias = config.has_attention_output_bias = config.has_mlp_bias = true;
  config.has_learned_positions = true;
  config.is_conv1d = true;
  config.is_head_tied = reader.flag("tie_word_embeddings", true);
  config.embedding_dropout = reader.probability("embd_pdrop", 0.1);
  config.residual_dropout = reader.probability("resid_pdrop", 0.1);
  config.attention_dropout = reader.probability("attn_pdrop", 0.1);
  config.initializer_range = reader.number("initializer_range", 0.02);
  // No key of transformers': upstream's own builder draws all weights alike.
  config.is_residual_init_scaled = reader.flag("scale_residual_init", true);
  const bool is_scaled = reader.flag("scale_attn_weights", true);
  const bool is_scaled_by_layer = reader.flag("scale_attn_by_inverse_layer_idx", false);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const double scale = is_scaled ? 1.0 / std::sqrt(static_cast<double>(config.head_dim)) : 1.0;
    config.layers[i].attention_scale =
        is_scaled_by_layer ? scale / static_cast<double>(i + 1) : scale;
  }
  if (reader.flag("add_cross_attention", false)) {
    reader.problem("add_cross_attention true is not built in this version");
  }
  return config;
}

}  // namespace

/// GPT-2: LayerNorm, learned positions, projections stored [in, out], dropout.
extern const Family kGpt2{
    .architecture = "GPT2LMHeadModel",
    .model_type = "gpt2",
    .config_class = "GPT2Config",
    .layer_class = "GPT2Block",
    .classifier = "GPT2ForSequenceClassification",
    .read_config = read_gpt2,
    .names = {.embedding = "transformer.wte",
              .positions = "transformer.wpe",
              .layers = "transformer.h",
              .final_norm = "transformer.ln_f",
              .attention = "attn",
              .qkv = "c_attn",
              .output = "c_proj",
              .up = "c_fc",
              .down = "c_proj",
              .attention_pre_norm = "ln_1",
              .mlp_pre_norm = "ln_2"},
    .flops = gpt_flops,
};

}  // namespace automodel::models::decoder
