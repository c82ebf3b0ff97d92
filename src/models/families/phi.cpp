#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_phi(ConfigReader& reader) {
  DecoderConfig config =
      read_common(reader, {.requires_kv_heads = false, .activation = "gelu_new"});
  config.norm = NormKind::kLayer;
  config.norm_placement = NormPlacement::kParallel;
  config.norm_eps = reader.not_negative("layer_norm_eps", 1e-5);
  config.is_mlp_gated = false;
  config.has_qkv_bias = config.has_attention_output_bias = config.has_mlp_bias = true;
  config.has_head_bias = true;
  config.residual_dropout = reader.probability("resid_pdrop", 0);
  config.embedding_dropout = reader.probability("embd_pdrop", 0);
  if (reader.flag("qk_layernorm", false)) config.qk_norm = QkNorm::kLayerPerHead;
  if (config.is_head_tied) {
    reader.problem("tie_word_embeddings true is not in this version: the head has a bias");
  }
  add_rope(reader, config, {.has_partial_default = true, .partial_default = 0.5});
  return config;
}

}  // namespace

/// Phi-1, Phi-1.5 and Phi-2: one LayerNorm before attention and MLP, which are side by side, biases
/// everywhere, also in the head, half of a head's dims rotated.
extern const Family kPhi{
    .architecture = "PhiForCausalLM",
    .model_type = "phi",
    .config_class = "PhiConfig",
    .layer_class = "PhiDecoderLayer",
    .classifier = "PhiForSequenceClassification",
    .read_config = read_phi,
    .names = {.final_norm = "model.final_layernorm",
              .output = "dense",
              .q_norm = "q_layernorm",
              .k_norm = "k_layernorm",
              .up = "fc1",
              .down = "fc2",
              .mlp_pre_norm = ""},
    .flops = gpt_flops,
};

}  // namespace automodel::models::decoder
