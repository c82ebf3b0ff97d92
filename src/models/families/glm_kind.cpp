#include "models/families/glm_kind.h"

namespace automodel::models::decoder {

DecoderConfig read_glm_kind(ConfigReader& reader) {
  DecoderConfig config = read_common(
      reader,
      {.head_dim = 128, .max_positions = 131072, .norm_eps = 1.5625e-7, .padding_idx = 151329});
  config.has_qkv_bias = reader.flag("attention_bias", true);
  config.is_rope_interleaved = true;
  add_rope(reader, config, {.has_partial_default = true, .partial_default = 0.5});
  return config;
}

}  // namespace automodel::models::decoder
