#include <cmath>
#include <string_view>

#include "core/text.h"
#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

/// Findings for options of the released code that no released model has.
void refuse_llada_options(ConfigReader& reader) {
  const auto expect_text = [&](std::string_view key, std::string_view fallback,
                               std::string_view built) {
    const std::string found = reader.text(key, fallback);
    if (found != built) {
      reader.problem(cat(key, " '", found, "' is not built in this version; '", built, "' is"));
    }
  };
  const auto expect_flag = [&](std::string_view key, bool fallback, bool built) {
    if (reader.flag(key, fallback) == built) return;
    reader.problem(cat(key, built ? " false" : " true", " is not built in this version"));
  };
  expect_text("block_type", "sequential", "llama");
  expect_text("layer_norm_type", "default", "rms");
  expect_flag("rope", false, true);
  expect_flag("alibi", false, false);
  expect_flag("multi_query_attention", false, false);
  expect_flag("layer_norm_with_affine", true, true);
  expect_flag("attention_layer_norm_with_affine", true, true);
  const bool is_said = reader.has("bias_for_layer_norm");
  if (reader.flag(is_said ? "bias_for_layer_norm" : "include_bias", false)) {
    reader.problem("norms with biases are not built in this version; bias_for_layer_norm: false");
  }
  if (reader.size("block_group_size", 1) != 1) {
    reader.problem("block_group_size above 1 gives tensors other names; it is not built here");
  }
}

void read_llada_sizes(ConfigReader& reader, DecoderConfig& config) {
  constexpr const char* kLayers = "n_layers";
  config.layers.resize(static_cast<size_t>(checked_layers(reader, kLayers, reader.size(kLayers))));
  config.vocab_size = reader.size("vocab_size");
  if (const int64_t rows = reader.size("embedding_size", config.vocab_size);
      rows < config.vocab_size) {
    reader.problem(cat("embedding_size ", rows, " is less than vocab_size ", config.vocab_size));
  } else {
    config.vocab_size = rows;  // of the embedding and of the logits
  }
  config.hidden_size = reader.size("d_model");
  config.num_heads = reader.size("n_heads");
  config.num_kv_heads = reader.size("n_kv_heads", config.num_heads);
  config.head_dim = config.hidden_size / config.num_heads;
  if (config.hidden_size % config.num_heads != 0) {
    reader.problem(
        cat("n_heads ", config.num_heads, " does not divide d_model ", config.hidden_size));
    config.head_dim = 2;
  }
  if (config.num_heads % config.num_kv_heads != 0) {
    reader.problem(
        cat("n_kv_heads ", config.num_kv_heads, " does not divide n_heads ", config.num_heads));
  }
  config.intermediate_size =
      reader.size("mlp_hidden_size", reader.size("mlp_ratio", 4) * config.hidden_size);
  config.max_positions = reader.size("max_sequence_length", 1024);
}

DecoderConfig read_llada(ConfigReader& reader) {
  DecoderConfig config;
  read_llada_sizes(reader, config);
  refuse_llada_options(reader);
  config.is_causal = false;
  config.norm_eps = reader.not_negative("rms_norm_eps", 1e-5);
  config.activation = reader.activation("activation_type", "swiglu");
  config.attention_dropout = reader.probability("attention_dropout", 0.1);
  config.residual_dropout = reader.probability("residual_dropout", 0.1);
  config.embedding_dropout = reader.probability("embedding_dropout", 0.1);
  config.initializer_range = reader.number("init_std", 0.02);
  config.is_head_tied = reader.flag("weight_tying", true);
  const bool has_bias = reader.flag("include_bias", false);
  config.has_qkv_bias = has_bias || reader.flag("include_qkv_bias", false);
  config.has_attention_output_bias = config.has_mlp_bias = has_bias;
  config.has_head_bias = has_bias && !config.is_head_tied;
  if (reader.flag("attention_layer_norm", false)) config.qk_norm = QkNorm::kWholeProjection;
  const double root = std::sqrt(static_cast<double>(config.hidden_size));
  if (reader.flag("input_emb_norm", false)) config.embedding_scale = root;
  if (reader.flag("scale_logits", false)) config.logit_scale = 1 / root;
  config.ropes.push_back(read_rope(reader, nullptr, config, {}));
  for (LayerOptions& layer : config.layers) layer.rope = 0;
  return config;
}

}  // namespace

/// LLaDA: a Llama whose attention sees later tokens too, trained by masked diffusion.
extern const Family kLlada{
    .architecture = "LLaDAModelLM",
    .model_type = "llada",
    .config_class = "LLaDAConfig",
    .layer_class = "LLaDALlamaBlock",
    .read_config = read_llada,
    .names = {.embedding = "model.transformer.wte",
              .layers = "model.transformer.blocks",
              .final_norm = "model.transformer.ln_f",
              .head = "model.transformer.ff_out",
              .attention = "",
              .output = "attn_out",
              .mlp = "",
              .gate = "ff_proj",
              .up = "up_proj",
              .down = "ff_out",
              .attention_pre_norm = "attn_norm",
              .mlp_pre_norm = "ff_norm"},
    // Upstream's recipes also name what another kind of its blocks has in their place.
    .aliases = {{{".q_proj", ".att_proj"}, {".k_proj", ".att_proj"}, {".v_proj", ".att_proj"}}},
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
