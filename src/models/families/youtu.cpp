#include <cmath>

#include "models/decoder/family.h"
#include "models/decoder/latent_reader.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_youtu(ConfigReader& reader) {
  DecoderConfig config = read_common(
      reader,
      {.requires_kv_heads = false, .head_dim = 64, .max_positions = 131072, .is_head_tied = true});
  add_latent_attention(reader, config, {});
  config.initializer_range = reader.number(
      "initializer_range", 2.0 / std::sqrt(5.0 * static_cast<double>(config.hidden_size)));
  config.embedding_initializer_range =
      reader.number("embedding_initializer_range", 2 * config.initializer_range);
  return config;
}

}  // namespace

/// Youtu-LLM: DeepSeek V3's latent attention, and Llama's MLP in every layer.
extern const Family kYoutu{
    .architecture = "YoutuForCausalLM",
    .model_type = "youtu",
    .config_class = "YoutuConfig",
    .layer_class = "YoutuDecoderLayer",
    .read_config = read_youtu,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
