#include "models/gpt_oss/config.h"

#include "models/decoder/moe_reader.h"

namespace automodel::models::gpt_oss {

namespace {

/// The rotary embedding of transformers' class where config.json says nothing.
Json default_rope() {
  Json rope = Json::object();
  rope["rope_type"] = Json("yarn");
  rope["factor"] = Json(32.0);
  rope["beta_fast"] = Json(32.0);
  rope["beta_slow"] = Json(1.0);
  rope["truncate"] = Json(false);
  rope["original_max_position_embeddings"] = Json(int64_t{4096});
  return rope;
}

}  // namespace

decoder::DecoderConfig read_config(decoder::ConfigReader& reader) {
  decoder::DecoderConfig config =
      decoder::read_common(reader, {.head_dim = 64, .max_positions = 131072, .norm_eps = 1e-5});
  config.has_qkv_bias = reader.flag("attention_bias", true);
  config.has_attention_output_bias = config.has_qkv_bias;
  config.has_attention_sinks = true;
  const int64_t window = reader.size("sliding_window", 128);
  decoder::add_windows(reader, config, window, [](int64_t layer) { return layer % 2 == 0; });
  const decoder::RopeDefaults rope{.theta = 150000.0};
  if (reader.has("rope_parameters") || reader.has("rope_scaling")) {
    decoder::add_rope(reader, config, rope);
  } else {
    const Json parameters = default_rope();
    config.ropes = {decoder::read_rope(reader, &parameters, config, rope)};
    for (decoder::LayerOptions& layer : config.layers) layer.rope = 0;
  }

  moe::MoEConfig moe = decoder::read_experts(reader, config,
                                             {.num_experts = "num_local_experts",
                                              .num_experts_alias = "num_experts",
                                              .default_num_experts = 128,
                                              .inner_dim = "intermediate_size",
                                              .default_num_chosen = 4});
  moe.router_bias = true;
  moe.expert_bias = true;
  moe.are_experts_transposed = true;
  moe.expert_activation = moe::ExpertActivation::kSwigluOai;
  moe.activation_limit = reader.number("swiglu_limit", 7.0);
  moe.aux_loss_coeff = reader.number("router_aux_loss_coef", 0.001);
  config.moe = moe;
  decoder::use_experts_from(config, 0);
  return config;
}

}  // namespace automodel::models::gpt_oss
