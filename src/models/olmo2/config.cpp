#include "models/olmo2/config.h"

namespace automodel::models::olmo2 {

decoder::DecoderConfig read_config(decoder::ConfigReader& reader) {
  decoder::DecoderConfig config = decoder::read_common(
      reader, {.requires_kv_heads = false, .norm_eps = 1e-5, .padding_idx = 1});
  config.norm_placement = decoder::NormPlacement::kPost;
  config.qk_norm = decoder::QkNorm::kWholeProjection;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  decoder::add_rope(reader, config, {});
  return config;
}

}  // namespace automodel::models::olmo2
