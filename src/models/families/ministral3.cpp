#include "models/decoder/family.h"
#include "models/families/mistral_kind.h"
#include "models/families/text_config.h"

namespace automodel::models::decoder {

DecoderConfig read_ministral3(ConfigReader& reader) {
  // The class's default applies only if the key is absent; null means hidden_size / heads.
  const int64_t head_dim = reader.json().contains("head_dim") ? 0 : 128;
  DecoderConfig config = read_common(
      reader, {.head_dim = head_dim, .max_positions = 262144, .norm_eps = 1e-5, .padding_idx = 11});
  const int64_t window = reader.size("sliding_window", 0);
  set_window(config, window);
  if (reader.has("rope_parameters") || reader.has("rope_scaling")) {
    add_rope(reader, config, {.scales_queries = true});
  } else {
    const Json parameters = mistral_yarn(1e6, 16.0, 16384);
    config.ropes = {read_rope(reader, &parameters, config, {.scales_queries = true})};
    for (LayerOptions& layer : config.layers) layer.rope = 0;
  }
  return config;
}

/// Ministral 3 and Devstral 2's text model: Mistral with YaRN and queries scaled by their position.
extern const Family kMinistral3{
    .architecture = "Ministral3ForCausalLM",
    .model_type = "ministral3",
    .config_class = "Ministral3Config",
    .layer_class = "Ministral3DecoderLayer",
    .classifier = "Ministral3ForSequenceClassification",
    .upstream = {.config_class =
                     "nemo_automodel.components.models.mistral3.model.Ministral3Config"},
    .read_config = read_ministral3,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
