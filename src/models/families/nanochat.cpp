#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_nanochat(ConfigReader& reader) {
  DecoderConfig config = read_common(
      reader, {.requires_kv_heads = false, .max_positions = 2048, .activation = "relu2"});
  config.has_norm_weight = false;
  config.has_embedding_norm = true;
  // Behind the rotation there, which leaves a head's length as it is but for the factor below.
  config.qk_norm = QkNorm::kPlainPerHead;
  config.is_attention_init_scaled = true;
  config.is_mlp_gated = false;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  const bool is_absent = !reader.json().contains("final_logit_softcapping");
  config.final_softcap = reader.not_negative("final_logit_softcapping", is_absent ? 15.0 : 0.0);
  add_rope(reader, config, {});
  for (nn::RopeOptions& rope : config.ropes) {
    rope.is_reversed = true;
    rope.attention_factor = 1.0;  // norms behind the rotation take it away
  }
  return config;
}

}  // namespace

/// nanochat: RMSNorms without weights, also of embeddings and of heads, heads that turn the other
/// way, a squared ReLU MLP without a gate, capped logits.
extern const Family kNanochat{
    .architecture = "NanoChatForCausalLM",
    .model_type = "nanochat",
    .config_class = "NanoChatConfig",
    .layer_class = "NanoChatDecoderLayer",
    .read_config = read_nanochat,
    .names = {.up = "fc1", .down = "fc2"},
    .flops = ungated_flops,
};

}  // namespace automodel::models::decoder
