#include "models/families/cohere_kind.h"

namespace automodel::models::decoder {

DecoderConfig read_cohere_kind(ConfigReader& reader, double theta, int64_t head_dim) {
  DecoderConfig config = read_common(reader, {.requires_kv_heads = false,
                                              .head_dim = head_dim,
                                              .max_positions = 8192,
                                              .is_head_tied = true,
                                              .padding_idx = 0});
  config.norm = NormKind::kLayer;
  config.has_norm_bias = false;
  config.norm_placement = NormPlacement::kParallel;
  config.norm_eps = reader.not_negative("layer_norm_eps", 1e-5);
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  config.logit_scale = reader.number("logit_scale", 0.0625);
  config.is_rope_interleaved = true;
  add_rope(reader, config, {.theta = theta});
  return config;
}

}  // namespace automodel::models::decoder
