#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_ministral(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.max_positions = 131072});
  // The class's default of 4096 applies only if the key is absent; null means no window.
  const int64_t absent = reader.json().contains("sliding_window") ? 0 : 4096;
  const int64_t window = reader.size("sliding_window", absent);
  add_windows(reader, config, window, [window](int64_t) { return window > 0; });
  add_rope(reader, config, {});
  return config;
}

}  // namespace

/// Ministral 8B: Mistral whose layers may have a window or not.
extern const Family kMinistral{
    .architecture = "MinistralForCausalLM",
    .model_type = "ministral",
    .config_class = "MinistralConfig",
    .layer_class = "MinistralDecoderLayer",
    .classifier = "MinistralForSequenceClassification",
    .read_config = read_ministral,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
