#include <algorithm>
#include <iterator>

#include "core/text.h"
#include "models/decoder/family.h"
#include "models/families/granite_kind.h"

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

DecoderConfig read_granite_swa(ConfigReader& reader) {
  DecoderConfig config =
      read_granite_kind(reader, {.max_positions = 8192, .norm_eps = 1e-5, .is_head_tied = true});
  config.has_mlp_bias = reader.flag("mlp_bias", false);
  config.has_attention_sinks = config.are_first_sinks_zero = true;
  // The class's default of 128 applies only if the key is absent; null means no window.
  const int64_t absent = reader.json().contains("sliding_window") ? 0 : 128;
  add_windows(reader, config, reader.size("sliding_window", absent),
              [](int64_t layer) { return layer % 4 != 0; });
  add_layer_ropes(reader, config);
  return config;
}

}  // namespace

/// Granite with attention sinks, a window in all but every fourth layer, and a theta a layer.
extern const Family kGraniteSwa{
    .architecture = "GraniteSWAForCausalLM",
    .model_type = "granite_swa",
    .config_class = "GraniteSWAConfig",
    .layer_class = "GraniteSWADecoderLayer",
    .read_config = read_granite_swa,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
