#include "models/glm4_moe/config.h"

#include "models/decoder/moe_reader.h"

namespace automodel::models::glm4_moe {

decoder::DecoderConfig read_config(decoder::ConfigReader& reader) {
  decoder::DecoderConfig config =
      decoder::read_common(reader, {.max_positions = 131072, .norm_eps = 1e-5});
  if (reader.flag("use_qk_norm", false)) config.qk_norm = decoder::QkNorm::kPerHead;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  decoder::add_rope(reader, config, {.has_partial_default = true, .partial_default = 0.5});

  moe::MoEConfig moe = decoder::read_experts(reader, config,
                                             {.num_experts = "n_routed_experts",
                                              .num_experts_alias = "num_local_experts",
                                              .default_num_experts = 128,
                                              .default_inner_dim = 1408,
                                              .default_num_chosen = 8});
  moe.n_shared_experts = reader.size("n_shared_experts", 1);
  decoder::read_expert_groups(reader, moe);
  moe.score_func = moe::ScoreFunction::kSigmoid;
  moe.has_correction_bias = true;
  moe.is_router_float32 = true;
  moe.norm_topk_prob = reader.flag("norm_topk_prob", true);
  moe.route_scale = reader.number("routed_scaling_factor", 1.0);
  moe.gate_bias_update_factor = 1e-3;
  config.moe = moe;
  decoder::use_experts_from(config, reader.count("first_k_dense_replace", 1));
  return config;
}

}  // namespace automodel::models::glm4_moe
