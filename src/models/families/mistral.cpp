#include "models/decoder/family.h"
#include "models/families/text_config.h"

namespace automodel::models::decoder {

DecoderConfig read_mistral(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.max_positions = 131072});
  // The class's default of 4096 applies only if the key is absent; null means no window.
  const int64_t absent = reader.json().contains("sliding_window") ? 0 : 4096;
  const int64_t window = reader.size("sliding_window", absent);
  set_window(config, window);
  add_rope(reader, config, {});
  return config;
}

/// Mistral: Llama with a window in every layer.
extern const Family kMistral{
    .architecture = "MistralForCausalLM",
    .model_type = "mistral",
    .config_class = "MistralConfig",
    .layer_class = "MistralDecoderLayer",
    .classifier = "MistralForSequenceClassification",
    .read_config = read_mistral,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
