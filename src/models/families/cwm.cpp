#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

/// transformers' rotary embedding for a config.json without one.
Json cwm_rope() {
  Json rope = Json::object();
  rope["rope_type"] = Json("llama3");
  rope["rope_theta"] = Json(1e6);
  rope["factor"] = Json(16.0);
  rope["low_freq_factor"] = Json(1.0);
  rope["high_freq_factor"] = Json(4.0);
  rope["original_max_position_embeddings"] = Json(int64_t{8192});
  return rope;
}

DecoderConfig read_cwm(ConfigReader& reader) {
  DecoderConfig config =
      read_common(reader, {.head_dim = 128, .max_positions = 131072, .norm_eps = 1e-5});
  config.has_mlp_bias = reader.flag("mlp_bias", false);
  if (reader.flag("attention_bias", false)) {
    reader.problem("attention_bias true is not built: transformers' CWM has no such biases");
  }
  add_windows(reader, config, reader.count("sliding_window", 8192),
              [](int64_t layer) { return layer % 4 != 0; });
  add_rope_or(reader, config, cwm_rope(), {.theta = 1e6});
  return config;
}

}  // namespace

/// Meta's Code World Model: Llama with a window in all but every fourth layer.
extern const Family kCwm{
    .architecture = "CwmForCausalLM",
    .model_type = "cwm",
    .config_class = "CwmConfig",
    .layer_class = "CwmDecoderLayer",
    .read_config = read_cwm,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
