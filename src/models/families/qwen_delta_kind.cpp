#include "models/families/qwen_delta_kind.h"

#include <vector>

#include "core/text.h"

namespace automodel::models::decoder {

namespace {

/// Whether each layer is a delta net.
std::vector<bool> read_delta_layers(ConfigReader& reader, int64_t num_layers) {
  if (auto listed = read_layer_types(reader, num_layers, "linear_attention")) return *listed;
  std::vector<bool> is_delta(static_cast<size_t>(num_layers));
  const int64_t interval = reader.size("full_attention_interval", 4);
  for (int64_t i = 0; i < num_layers; ++i) {
    is_delta[static_cast<size_t>(i)] = (i + 1) % interval != 0;
  }
  return is_delta;
}

GatedDeltaOptions read_sizes(ConfigReader& reader) {
  GatedDeltaOptions sizes;
  sizes.num_key_heads = reader.size("linear_num_key_heads", 16);
  sizes.num_heads = reader.size("linear_num_value_heads", 32);
  sizes.key_dim = reader.size("linear_key_head_dim", 128);
  sizes.value_dim = reader.size("linear_value_head_dim", 128);
  sizes.num_taps = reader.size("linear_conv_kernel_dim", 4);
  if (sizes.num_heads % sizes.num_key_heads != 0) {
    reader.problem(cat("linear_num_key_heads ", sizes.num_key_heads,
                       " does not divide linear_num_value_heads ", sizes.num_heads));
    sizes.num_heads = sizes.num_key_heads;
  }
  return sizes;
}

}  // namespace

DecoderConfig read_qwen_delta_kind(ConfigReader& reader, const CommonDefaults& defaults) {
  CommonDefaults own = defaults;
  own.head_dim = 256;
  own.max_positions = 32768;
  DecoderConfig config = read_common(reader, own);
  config.norm = NormKind::kRmsPlusOne;
  config.qk_norm = QkNorm::kPerHead;
  config.has_attention_gate = true;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  add_rope(reader, config, {.has_partial_default = true, .partial_default = 0.25});
  config.gated_delta = read_sizes(reader);
  const std::vector<bool> is_delta = read_delta_layers(reader, config.num_layers());
  for (size_t i = 0; i < is_delta.size(); ++i) {
    if (is_delta[i]) config.layers[i].mixer = Mixer::kGatedDelta;
  }
  return config;
}

moe::MoEConfig read_qwen_delta_experts(ConfigReader& reader, const DecoderConfig& config,
                                       const MoEKeys& keys) {
  moe::MoEConfig moe = read_experts(reader, config, keys);
  moe.softmax_before_topk = true;
  moe.norm_topk_prob = true;
  moe.n_shared_experts = 1;
  moe.shared_expert_inter_dim = reader.size("shared_expert_intermediate_size", 512);
  moe.shared_expert_gate = true;
  moe.aux_loss_coeff = reader.number("router_aux_loss_coef", 0.001);
  return moe;
}

double qwen_delta_flops(const DecoderConfig& config, double B, double S) {
  const auto h = static_cast<double>(config.hidden_size);
  const auto width = static_cast<double>(config.num_heads * config.head_dim);
  const double q = static_cast<double>(config.num_kv_heads) / static_cast<double>(config.num_heads);
  double flops = mlps_and_head_flops(config, B, S);
  for (const LayerOptions& layer : config.layers) {
    flops += layer.mixer == Mixer::kGatedDelta ? gated_delta_flops(config, B, S)
                                               : 6 * B * S * h * width * (2 * q + 2 + S / h + 1);
  }
  return flops;
}

}  // namespace automodel::models::decoder
