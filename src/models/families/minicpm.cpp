#include <algorithm>
#include <cmath>
#include <cstdint>

#include "models/decoder/family.h"
#include "models/decoder/latent_reader.h"

namespace automodel::models::decoder {

namespace {

/// Defaults of a family's config class.
struct Scales {
  double embedding = 1.0;
  double depth = 1.0;
  int64_t base = 1;
};

/// Scales of the embedding, of branches and of logits, in which widths and depths are measured.
void add_scales(ConfigReader& reader, DecoderConfig& config, const Scales& defaults) {
  const auto is_null = [&](const char* key) {  // no scale, which an absent key does not mean
    return reader.json().contains(key) && !reader.has(key);
  };
  config.embedding_scale = reader.number("scale_emb", defaults.embedding);
  if (!is_null("scale_depth")) {
    config.residual_scale = reader.number("scale_depth", defaults.depth) /
                            std::sqrt(static_cast<double>(config.num_layers()));
  }
  if (!is_null("dim_model_base")) {
    const auto base = static_cast<double>(reader.size("dim_model_base", defaults.base));
    config.logit_scale = base / static_cast<double>(config.hidden_size);
  }
}

DecoderConfig read_minicpm(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.requires_kv_heads = false, .is_head_tied = true});
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  add_scales(reader, config, {});
  if (reader.has("sparse_config")) {
    reader.problem(
        "sparse_config is not in this version: attention to chosen blocks; without it attention "
        "sees all");
  }
  if (reader.count("num_experts", 0) > 0) {
    reader.problem("num_experts is not in this version: MiniCPM's layers of experts");
  }
  add_rope(reader, config, {});
  return config;
}

DecoderConfig read_minicpm3(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.requires_kv_heads = false,
                                              .head_dim = 64,
                                              .max_positions = 32768,
                                              .norm_eps = 1e-5,
                                              .is_head_tied = true});
  config.initializer_range = reader.number("initializer_range", 0.1);
  config.has_mlp_bias = reader.flag("mlp_bias", false);
  add_latent_attention(reader, config,
                       {.q_rank = 768,
                        .kv_rank = 256,
                        .plain_dim = 64,
                        .rotated_dim = 32,
                        .value_dim = std::max<int64_t>(1, config.hidden_size / config.num_heads),
                        .reads_interleaving = false});
  config.latent_attention->is_rope_interleaved = false;
  add_scales(reader, config, {.embedding = 12, .depth = 1.4, .base = 256});
  return config;
}

}  // namespace

/// MiniCPM 1, 2 and 4: Llama with scales of the embedding, branches and logits. Of code that comes
/// with the released files.
extern const Family kMiniCpm{
    .architecture = "MiniCPMForCausalLM",
    .model_type = "minicpm",
    .config_class = "MiniCPMConfig",
    .layer_class = "MiniCPMDecoderLayer",
    .read_config = read_minicpm,
    .flops = gated_flops,
};

/// MiniCPM 3: the same scales with DeepSeek's latent attention.
extern const Family kMiniCpm3{
    .architecture = "MiniCPM3ForCausalLM",
    .model_type = "minicpm3",
    .config_class = "MiniCPM3Config",
    .layer_class = "MiniCPM3DecoderLayer",
    .classifier = "MiniCPM3ForSequenceClassification",
    .read_config = read_minicpm3,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
