#include <algorithm>
#include <vector>

#include "core/text.h"
#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

/// Which layers rotate: those with a 1 in no_rope_layers, else all but every fourth.
std::vector<bool> read_rotated_layers(ConfigReader& reader, int64_t num_layers) {
  const int64_t interval = reader.size("no_rope_layer_interval", 4);
  std::vector<bool> rotated;
  for (int64_t i = 0; i < num_layers; ++i) rotated.push_back((i + 1) % interval != 0);
  const Json* listed = reader.find("no_rope_layers");
  if (listed == nullptr) return rotated;
  const bool is_list = listed->is_array() && listed->size() >= rotated.size() &&
                       std::ranges::all_of(listed->as_array(), &Json::is_int);
  if (!is_list) {
    reader.problem(cat("no_rope_layers must be a list of ", num_layers,
                       " numbers: 1 for a layer that rotates, 0 for one that does not"));
    return rotated;
  }
  for (size_t i = 0; i < rotated.size(); ++i) rotated[i] = listed->as_array()[i].as_int() != 0;
  return rotated;
}

DecoderConfig read_smollm3(ConfigReader& reader) {
  DecoderConfig config =
      read_common(reader, {.max_positions = 32768, .is_head_tied = true, .padding_idx = 128004});
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  config.has_mlp_bias = reader.flag("mlp_bias", false);
  add_rope(reader, config, {.theta = 2e6});
  const std::vector<bool> rotated = read_rotated_layers(reader, config.num_layers());
  for (size_t i = 0; i < rotated.size(); ++i) config.layers[i].rope = rotated[i] ? 0 : -1;
  add_windows(reader, config, read_requested_window(reader, 0),
              [&](int64_t layer) { return !rotated[static_cast<size_t>(layer)]; });
  return config;
}

}  // namespace

/// SmolLM3: Llama with layers that do not rotate; a window in those when asked for.
extern const Family kSmolLm3{
    .architecture = "SmolLM3ForCausalLM",
    .model_type = "smollm3",
    .config_class = "SmolLM3Config",
    .layer_class = "SmolLM3DecoderLayer",
    .classifier = "SmolLM3ForSequenceClassification",
    .read_config = read_smollm3,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
