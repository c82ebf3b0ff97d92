#include <algorithm>

#include "core/divide.h"
#include "core/text.h"
#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

/// Findings for keys of an attention or an MLP whose values would change what is computed.
void refuse_other_blocks(ConfigReader& reader, ConfigReader& part, const std::string& place) {
  for (const char* key : {"replace_with_linear", "sparsify", "window_length", "num_sink_tokens",
                          "unshifted_sink", "use_prefill_window_in_sink_attention", "mamba",
                          "llama4", "moe", "is_mamba", "is_llama4", "is_moe"}) {
    const Json* found = part.find(key);
    if (found == nullptr || *found == Json(false)) continue;
    reader.problem(cat(place, ".", key, " ", found->dump(), " is not built for this family"));
  }
}

/// Width of an MLP: two thirds of a multiple of the hidden size, rounded up to whole 256.
int64_t width_of(double multiple, int64_t hidden_size) {
  constexpr int64_t kStep = 256;
  const auto exact = static_cast<int64_t>(2 * multiple * static_cast<double>(hidden_size) / 3);
  return round_up(exact, kStep);
}

void read_attention(ConfigReader& reader, ConfigReader& part, const std::string& place,
                    const DecoderConfig& config, LayerOptions& layer) {
  refuse_other_blocks(reader, part, place);
  if (part.flag("no_op", false)) {
    layer.mixer = Mixer::kNone;
    return;
  }
  const int64_t heads = part.size("n_heads_in_group");
  if (config.num_heads % heads != 0) {
    reader.problem(cat(place, ".n_heads_in_group ", heads, " does not divide num_attention_heads ",
                       config.num_heads));
    return;
  }
  layer.num_kv_heads = config.num_heads / heads;
}

void read_mlp(ConfigReader& reader, ConfigReader& part, const std::string& place,
              const DecoderConfig& config, LayerOptions& layer) {
  refuse_other_blocks(reader, part, place);
  layer.has_mlp = !part.flag("no_op", false);
  if (!layer.has_mlp) return;
  if (part.has("intermediate_size")) {
    layer.intermediate_size = part.size("intermediate_size");
    return;
  }
  constexpr double kMost = 1e4;  // more is a slip
  const double multiple = part.number("ffn_mult", 0);
  const bool is_right = multiple > 0 && multiple <= kMost;
  if (!is_right)
    reader.problem(cat(place, ".ffn_mult must be above 0 and at most 10000, not ", multiple));
  layer.intermediate_size = is_right ? width_of(multiple, config.hidden_size) : 1;
}

/// Reads what each layer has, of block_configs.
void read_blocks(ConfigReader& reader, DecoderConfig& config) {
  const Json* blocks = reader.find("block_configs");
  if (blocks == nullptr || !blocks->is_array() || blocks->size() < config.layers.size()) {
    reader.problem(cat("block_configs must be a list with an entry for each of ",
                       config.num_layers(), " layers"));
    return;
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const auto read = [&](const char* name, const auto& read_part) {
      const std::string place = cat("block_configs.", i, ".", name);
      const Json* found = blocks->as_array()[i].find(name);
      if (found == nullptr || !found->is_object()) {
        reader.problem(cat(place, " must be an object"));
        return;
      }
      ConfigReader part(*found);
      read_part(reader, part, place, config, config.layers[i]);
      for (const std::string& text : part.problems()) reader.problem(cat(place, ".", text));
    };
    read("attention", read_attention);
    read("ffn", read_mlp);
    if (config.layers[i].mixer == Mixer::kNone && !config.layers[i].has_mlp) {
      reader.problem(cat("block_configs.", i, " has neither attention nor an MLP"));
    }
  }
}

DecoderConfig read_decilm(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.requires_kv_heads = false,
                                              .intermediate_size = 1,
                                              .max_positions = 131072,
                                              .norm_eps = 1e-5});
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  config.has_mlp_bias = reader.flag("mlp_bias", false);
  read_blocks(reader, config);
  for (const LayerOptions& layer : config.layers) {
    config.intermediate_size = std::max(config.intermediate_size, layer.intermediate_size);
  }
  add_rope(reader, config, {.theta = 500000.0});
  return config;
}

}  // namespace

/// Nemotron NAS (Llama Nemotron Super 49B, Ultra 253B): Llama whose layers may lack attention or
/// the MLP, and have numbers of heads of keys and widths of the MLP of their own.
extern const Family kDeciLM{
    .architecture = "DeciLMForCausalLM",
    .model_type = "nemotron-nas",
    .config_class = "DeciLMConfig",
    .layer_class = "DeciLMDecoderLayer",
    .read_config = read_decilm,
    .flops = layered_flops,
};

}  // namespace automodel::models::decoder
