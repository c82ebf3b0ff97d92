#include <vector>

#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

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
