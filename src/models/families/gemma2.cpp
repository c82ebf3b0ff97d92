#include <cmath>

#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_gemma2(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.head_dim = 256,
                                              .max_positions = 8192,
                                              .is_head_tied = true,
                                              .padding_idx = 0,
                                              .activation_key = "hidden_activation",
                                              .activation = "gelu_pytorch_tanh"});
  config.norm = NormKind::kRmsPlusOne;
  config.norm_placement = NormPlacement::kSandwich;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.is_embedding_scale_rounded = true;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  // A cap that is there with null is off; an absent one has the class's default.
  const auto cap = [&](const char* key, double absent) {
    return reader.number(key, reader.json().contains(key) ? 0 : absent);
  };
  config.attention_softcap = cap("attn_logit_softcapping", 50.0);
  config.final_softcap = cap("final_logit_softcapping", 30.0);
  const double scale = 1.0 / std::sqrt(reader.number("query_pre_attn_scalar", 256));
  for (LayerOptions& layer : config.layers) layer.attention_scale = scale;
  add_windows(reader, config, reader.size("sliding_window", 4096),
              [](int64_t layer) { return layer % 2 == 0; });
  add_rope(reader, config, {});
  return config;
}

}  // namespace

/// Gemma 2: soft caps, every other layer slides, norms around each branch.
extern const Family kGemma2{
    .architecture = "Gemma2ForCausalLM",
    .model_type = "gemma2",
    .config_class = "Gemma2Config",
    .layer_class = "Gemma2DecoderLayer",
    .read_config = read_gemma2,
    .names = {.attention_post_norm = "post_attention_layernorm",
              .mlp_pre_norm = "pre_feedforward_layernorm",
              .mlp_post_norm = "post_feedforward_layernorm"},
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
