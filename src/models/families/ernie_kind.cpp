#include "models/families/ernie_kind.h"

namespace automodel::models::decoder {

DecoderConfig read_ernie_kind(ConfigReader& reader, int64_t head_dim) {
  DecoderConfig config = read_common(reader, {.head_dim = head_dim,
                                              .max_positions = 131072,
                                              .norm_eps = 1e-5,
                                              .is_head_tied = true,
                                              .has_attention_dropout = false,
                                              .padding_idx = 0});
  const bool has_biases = reader.flag("use_bias", false);
  config.has_qkv_bias = config.has_attention_output_bias = config.has_mlp_bias = has_biases;
  config.is_rope_interleaved = true;
  add_rope(reader, config, {.theta = 500000.0});
  return config;
}

}  // namespace automodel::models::decoder
