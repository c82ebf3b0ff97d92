#include "core/text.h"
#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_helium(ConfigReader& reader) {
  DecoderConfig config = read_common(
      reader, {.head_dim = 128, .max_positions = 4096, .norm_eps = 1e-8, .padding_idx = 3});
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_mlp_bias = reader.flag("mlp_bias", false);
  config.is_rope_interleaved = true;
  if (config.num_heads * config.head_dim != config.hidden_size) {
    reader.problem(cat("num_attention_heads ", config.num_heads, " times head_dim ",
                       config.head_dim, " must be hidden_size ", config.hidden_size));
  }
  add_rope(reader, config, {.theta = 100000.0});
  return config;
}

}  // namespace

/// Helium: Llama with neighbouring dims rotated.
extern const Family kHelium{
    .architecture = "HeliumForCausalLM",
    .model_type = "helium",
    .config_class = "HeliumConfig",
    .layer_class = "HeliumDecoderLayer",
    .classifier = "HeliumForSequenceClassification",
    .read_config = read_helium,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
