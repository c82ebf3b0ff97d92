#include <algorithm>

#include "core/text.h"
#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

/// transformers' default rotary embedding for a config.json without one.
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

DecoderConfig read_gpt_oss(ConfigReader& reader) {
  DecoderConfig config =
      read_common(reader, {.head_dim = 64, .max_positions = 131072, .norm_eps = 1e-5});
  config.has_qkv_bias = reader.flag("attention_bias", true);
  config.has_attention_output_bias = config.has_qkv_bias;
  config.has_attention_sinks = true;
  const int64_t window = reader.size("sliding_window", 128);
  add_windows(reader, config, window, [](int64_t layer) { return layer % 2 == 0; });
  add_rope_or(reader, config, default_rope(), {.theta = 150000.0});

  moe::MoEConfig moe = read_experts(reader, config,
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
  if (moe.activation_limit <= 0) {
    reader.problem(cat("swiglu_limit is ", moe.activation_limit, "; it must be above 0"));
  }
  moe.aux_loss_coeff = reader.number("router_aux_loss_coef", 0.001);
  config.moe = moe;
  use_experts_from(config, 0);
  return config;
}

/// Upstream's formula, which counts the keys in a layer's window and takes hidden_size / heads as
/// the size of a head.
double gpt_oss_flops(const DecoderConfig& config, double B, double S) {
  const auto h = static_cast<double>(config.hidden_size);
  const int64_t whole_head_dim = config.hidden_size / config.num_heads;
  const auto head_dim = static_cast<double>(whole_head_dim);
  const auto heads = static_cast<double>(config.num_heads);
  const auto kv_heads = static_cast<double>(config.num_kv_heads);
  const auto inner =
      static_cast<double>(config.moe->n_activated_experts * config.moe->moe_inter_dim);
  double products = S * h * static_cast<double>(config.head_rows());
  for (const LayerOptions& layer : config.layers) {
    const double window = layer.window == 0 ? S : std::min(S, static_cast<double>(layer.window));
    const double pairs = window * (window + 1) / 2 + (S - window) * window;
    products += 2 * S * h * head_dim * (heads + kv_heads) + 2 * heads * head_dim * pairs;
    products += 3 * S * h * inner;
  }
  return 6 * B * products;
}

}  // namespace

/// GPT-OSS: attention sinks, alternating windows, biases everywhere, clamped gates; a softmax over
/// the chosen experts.
extern const Family kGptOss{
    .architecture = "GptOssForCausalLM",
    .model_type = "gpt_oss",
    .config_class = "GptOssConfig",
    .layer_class = "GptOssDecoderLayer",
    .experts_class = "GptOssExperts",
    .classifier = "GptOssForSequenceClassification",
    .read_config = read_gpt_oss,
    .names = {.router = "router", .are_experts_stacked = true},
    .flops = gpt_oss_flops,
};

}  // namespace automodel::models::decoder
