#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"
#include "models/families/olmo_kind.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_olmoe(ConfigReader& reader) {
  DecoderConfig config = read_common(
      reader,
      {.requires_kv_heads = false, .max_positions = 4096, .norm_eps = 1e-5, .padding_idx = 1});
  config.qk_norm = QkNorm::kWholeProjection;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  config.qkv_clip = read_clip_qkv(reader);
  add_rope(reader, config, {});

  config.moe = read_olmo_experts(reader, config, {});
  use_experts_from(config, 0);
  return config;
}

}  // namespace

/// OLMoE: experts in every layer, scores by softmax, q and k normed over all heads together and
/// bounded.
extern const Family kOlmoe{
    .architecture = "OlmoeForCausalLM",
    .model_type = "olmoe",
    .config_class = "OlmoeConfig",
    .layer_class = "OlmoeDecoderLayer",
    .experts_class = "OlmoeExperts",
    .read_config = read_olmoe,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
