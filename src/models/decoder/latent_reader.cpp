#include "models/decoder/latent_reader.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/text.h"

namespace automodel::models::decoder {

namespace {

LatentAttentionOptions read_sizes(ConfigReader& reader, const LatentDefaults& defaults) {
  LatentAttentionOptions sizes;
  // Here null has a meaning of its own: queries have no narrow projection.
  const bool has_null = reader.json().contains("q_lora_rank") && !reader.has("q_lora_rank");
  sizes.q_rank = has_null ? 0 : reader.size("q_lora_rank", defaults.q_rank);
  sizes.kv_rank = reader.size("kv_lora_rank", defaults.kv_rank);
  sizes.plain_dim = reader.size("qk_nope_head_dim", defaults.plain_dim);
  sizes.rotated_dim = reader.size("qk_rope_head_dim", defaults.rotated_dim);
  sizes.value_dim = reader.size("v_head_dim", defaults.value_dim);
  if (defaults.has_rope && defaults.reads_interleaving) {
    sizes.is_rope_interleaved = reader.flag("rope_interleave", true);
  }
  return sizes;
}

/// The scale of attention's scores: 1 / sqrt(dims of a head of q), times the square of YaRN's
/// factor where there is one.
double attention_scale(const DecoderConfig& config) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(config.qk_dim()));
  if (config.ropes.empty()) return scale;
  const nn::RopeOptions& rope = config.ropes[0];
  const bool is_scaled = rope.type != nn::RopeType::kDefault && rope.mscale_all_dim != 0 &&
                         rope.factor.value_or(1.0) > 1.0;
  if (!is_scaled) return scale;
  const double factor = 0.1 * rope.mscale_all_dim * std::log(*rope.factor) + 1.0;
  return scale * factor * factor;
}

/// The rotation of the rotated dims alone.
void add_latent_rope(ConfigReader& reader, DecoderConfig& config, const LatentDefaults& defaults) {
  RopeDefaults rope{.scales_queries = defaults.scales_queries};
  const int64_t rotated_dim = config.head_dim;
  if (defaults.is_partial_of_heads) {
    config.head_dim = config.qk_dim();
    rope.has_partial_default = true;
    rope.partial_default = static_cast<double>(rotated_dim) / static_cast<double>(config.head_dim);
  }
  if (defaults.absent_rope != nullptr && !reader.has("rope_parameters") &&
      !reader.has("rope_scaling")) {
    config.ropes = {read_rope(reader, defaults.absent_rope, config, rope)};
    for (LayerOptions& layer : config.layers) layer.rope = 0;
  } else {
    add_rope(reader, config, rope);
  }
  config.head_dim = rotated_dim;
  int64_t& found = config.ropes[0].rotary_dim;
  if (defaults.is_partial_of_heads && found != rotated_dim) {
    reader.problem(cat("partial_rotary_factor makes ", found, " of a head's ", config.qk_dim(),
                       " dims rotate; it must be qk_rope_head_dim ", rotated_dim));
    found = rotated_dim;
  } else if (found != rotated_dim) {
    reader.problem(cat("partial_rotary_factor makes ", found, " of the ", rotated_dim,
                       " dims of qk_rope_head_dim rotate; it must be 1"));
    found = rotated_dim;
  }
}

}  // namespace

void add_latent_attention(ConfigReader& reader, DecoderConfig& config,
                          const LatentDefaults& defaults) {
  config.latent_attention = read_sizes(reader, defaults);
  config.head_dim = config.latent_attention->rotated_dim;
  config.num_kv_heads = config.num_heads;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  if (defaults.has_rope) add_latent_rope(reader, config, defaults);
  for (LayerOptions& layer : config.layers) layer.attention_scale = attention_scale(config);
}

namespace {

/// Which layers have an indexer of their own: by the list indexer_types, or index_topk_pattern, or
/// every index_topk_freq-th one.
std::vector<bool> read_choosing_layers(ConfigReader& reader, int64_t num_layers) {
  std::vector<bool> are_choosing;
  const Json* types = reader.find("indexer_types");
  const Json* pattern = reader.find("index_topk_pattern");
  const bool is_letters = types == nullptr && pattern != nullptr && pattern->is_string();
  if (types == nullptr) types = pattern;
  if (is_letters) {
    for (const char letter : pattern->as_string()) {
      if (letter != 'F' && letter != 'S') {
        reader.problem("index_topk_pattern is made of the letters F (full) and S (shared)");
        return std::vector<bool>(static_cast<size_t>(num_layers), true);
      }
      are_choosing.push_back(letter == 'F');
    }
  } else if (types != nullptr && types->is_array()) {
    for (const Json& type : types->as_array()) {
      if (!type.is_string() || (type != "full" && type != "shared")) {
        reader.problem("indexer_types has entries \"full\" and \"shared\"");
        return std::vector<bool>(static_cast<size_t>(num_layers), true);
      }
      are_choosing.push_back(type == "full");
    }
  } else if (types == nullptr) {
    const int64_t every = std::max<int64_t>(reader.count("index_topk_freq", 1), 1);
    const int64_t offset = reader.count("index_skip_topk_offset", 2);
    for (int64_t i = 0; i < num_layers; ++i) {
      are_choosing.push_back(std::max<int64_t>(i - offset + 1, 0) % every == 0);
    }
  }
  if (static_cast<int64_t>(are_choosing.size()) != num_layers) {
    reader.problem("indexer_types must be a list with an entry for each layer");
    are_choosing.assign(static_cast<size_t>(num_layers), true);
  }
  if (!are_choosing.front()) {
    reader.problem("indexer_types: the first layer is shared, but there is none before it");
    are_choosing.front() = true;
  }
  return are_choosing;
}

}  // namespace

void add_indexer(ConfigReader& reader, DecoderConfig& config, const IndexerDefaults& defaults) {
  IndexerOptions options;
  options.num_heads = reader.size("index_n_heads", defaults.num_heads);
  options.head_dim = reader.size("index_head_dim", defaults.head_dim);
  options.num_chosen = reader.size("index_topk", defaults.num_chosen);
  options.is_rope_interleaved =
      reader.flag("indexer_rope_interleave", defaults.is_rope_interleaved);
  const LatentAttentionOptions& latent = *config.latent_attention;
  if (latent.q_rank == 0) {
    reader.problem("q_lora_rank is null; an indexer takes its queries from that projection");
    config.latent_attention->q_rank = 1;
  }
  if (options.head_dim < latent.rotated_dim) {
    reader.problem(cat("index_head_dim ", options.head_dim, " is less than the qk_rope_head_dim ",
                       latent.rotated_dim, " of it that rotate"));
    options.head_dim = latent.rotated_dim;
  }
  config.indexer = options;
  std::vector<bool> are_choosing(config.layers.size(), true);
  if (defaults.can_share) are_choosing = read_choosing_layers(reader, config.num_layers());
  int64_t last = 0;
  for (size_t i = 0; i < are_choosing.size(); ++i) {
    if (are_choosing[i]) last = static_cast<int64_t>(i);
    config.layers[i].choosing_layer = last;
  }
}

}  // namespace automodel::models::decoder
