#include "models/families/granite_kind.h"

#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

DecoderConfig read_granite_kind(ConfigReader& reader, const CommonDefaults& defaults) {
  DecoderConfig config = read_common(reader, defaults);
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  config.embedding_scale = reader.number("embedding_multiplier", 1.0);
  config.residual_scale = reader.number("residual_multiplier", 1.0);
  const double divisor = reader.number("logits_scaling", 1.0);
  if (divisor == 0) reader.problem("logits_scaling is 0; logits are divided by it");
  config.logit_scale = divisor == 0 ? 1.0 : 1.0 / divisor;
  const double scale = reader.number("attention_multiplier", 1.0);
  for (LayerOptions& layer : config.layers) layer.attention_scale = scale;
  add_rope(reader, config, {});
  return config;
}

moe::MoEConfig read_granite_experts(ConfigReader& reader, const DecoderConfig& config) {
  moe::MoEConfig moe = read_experts(reader, config,
                                    {.num_experts = "num_local_experts",
                                     .num_experts_alias = "num_experts",
                                     .default_num_experts = 8,
                                     .inner_dim = "intermediate_size",
                                     .default_num_chosen = 2});
  moe.aux_loss_coeff = reader.number("router_aux_loss_coef", 0.001);
  return moe;
}

}  // namespace automodel::models::decoder
