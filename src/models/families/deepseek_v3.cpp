#include "models/decoder/family.h"
#include "models/decoder/latent_reader.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_deepseek_v3(ConfigReader& reader) {
  DecoderConfig config =
      read_common(reader, {.requires_kv_heads = false, .head_dim = 64, .max_positions = 4096});
  add_latent_attention(reader, config, {});
  add_corrected_experts(reader, config, deepseek_experts());
  read_next_token_layers(reader, config);
  return config;
}

}  // namespace

/// DeepSeek V3 (also Moonlight, Kimi K2): latent attention, sigmoid scores with a correction for
/// the choice, groups, shared experts, dense first layers.
extern const Family kDeepseekV3{
    .architecture = "DeepseekV3ForCausalLM",
    .model_type = "deepseek_v3",
    .config_class = "DeepseekV3Config",
    .layer_class = "DeepseekV3DecoderLayer",
    .experts_class = "DeepseekV3Experts",
    .classifier = "DeepseekV3ForSequenceClassification",
    .read_config = read_deepseek_v3,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
