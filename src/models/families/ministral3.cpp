#include "models/decoder/family.h"
#include "models/families/text_config.h"

namespace automodel::models::decoder {

namespace {

/// transformers' default rotary embedding for a config.json without one.
Json ministral_rope() {
  Json rope = Json::object();
  rope["rope_type"] = Json("yarn");
  rope["rope_theta"] = Json(1e6);
  rope["factor"] = Json(16.0);
  rope["original_max_position_embeddings"] = Json(int64_t{16384});
  rope["beta_fast"] = Json(32.0);
  rope["beta_slow"] = Json(1.0);
  rope["mscale"] = Json(1.0);
  rope["mscale_all_dim"] = Json(1.0);
  rope["llama_4_scaling_beta"] = Json(0.1);
  return rope;
}

}  // namespace

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
    const Json parameters = ministral_rope();
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
    .read_config = read_ministral3,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
