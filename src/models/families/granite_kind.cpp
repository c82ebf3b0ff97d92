#include "models/families/granite_kind.h"

#include <algorithm>
#include <iterator>

#include "core/text.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

/// Rope i of each layer by its theta in `layer_rope_theta`, 0 for a layer that does not rotate.
void add_layer_ropes(ConfigReader& reader, DecoderConfig& config) {
  constexpr const char* kThetas = "layer_rope_theta";
  const Json* listed = reader.find(kThetas);
  if (listed == nullptr) return;
  const bool is_list = listed->is_array() && std::ssize(listed->as_array()) == config.num_layers();
  if (!is_list || !std::ranges::all_of(listed->as_array(),
                                       [](const Json& theta) { return theta.is_number(); })) {
    reader.problem(cat(kThetas, " must be a list of ", config.num_layers(),
                       " numbers, one a layer; 0: the layer does not rotate"));
    return;
  }
  const nn::RopeOptions common = config.ropes.front();
  config.ropes.clear();
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const double theta = listed->as_array()[i].as_double();
    if (theta == 0) {
      config.layers[i].rope = -1;
      continue;
    }
    if (!(theta > 1)) {
      reader.problem(cat(kThetas, " holds ", theta, "; a theta is above 1, or 0 for no rotation"));
    }
    const auto found = std::ranges::find(config.ropes, theta, &nn::RopeOptions::theta);
    config.layers[i].rope = static_cast<int>(found - config.ropes.begin());
    if (found != config.ropes.end()) continue;
    config.ropes.push_back(common);
    config.ropes.back().theta = theta;
  }
}

}  // namespace

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
  if (scale == 0) reader.problem("attention_multiplier is 0: every key would have the same score");
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

void add_granite_windows(ConfigReader& reader, DecoderConfig& config, int64_t window) {
  config.has_attention_sinks = config.are_first_sinks_zero = true;
  // The class's default applies only if the key is absent; null means no window.
  const int64_t absent = reader.json().contains("sliding_window") ? 0 : window;
  add_windows(reader, config, reader.size("sliding_window", absent),
              [](int64_t layer) { return layer % 4 != 0; });
  add_layer_ropes(reader, config);
}

}  // namespace automodel::models::decoder
