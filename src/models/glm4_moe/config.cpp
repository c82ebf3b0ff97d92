#include "models/glm4_moe/config.h"

#include "models/decoder/moe_reader.h"

namespace automodel::models::glm4_moe {

decoder::DecoderConfig read_config(decoder::ConfigReader& reader) {
  decoder::DecoderConfig config =
      decoder::read_common(reader, {.max_positions = 131072, .norm_eps = 1e-5});
  if (reader.flag("use_qk_norm", false)) config.qk_norm = decoder::QkNorm::kPerHead;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  decoder::add_rope(reader, config, {.has_partial_default = true, .partial_default = 0.5});

  decoder::add_corrected_experts(reader, config,
                                 {.keys = {.num_experts = "n_routed_experts",
                                           .num_experts_alias = "num_local_experts",
                                           .default_num_experts = 128,
                                           .default_inner_dim = 1408,
                                           .default_num_chosen = 8}});
  return config;
}

}  // namespace automodel::models::glm4_moe
