#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "core/text.h"
#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"
#include "models/families/granite_kind.h"
#include "models/families/hybrid_kind.h"

namespace automodel::models::decoder {

namespace {

/// Which layers have attention by `layer_types`, or as released files call it layers_block_type;
/// none where neither is there.
std::vector<bool> read_attention_types(ConfigReader& reader, int64_t num_layers) {
  const std::string_view key = either(reader, "layer_types", "layers_block_type");
  std::vector<bool> out(static_cast<size_t>(num_layers), false);
  const Json* types = reader.find(key);
  if (types == nullptr) return out;
  bool is_right = types->is_array() && std::ssize(types->as_array()) == num_layers;
  for (size_t i = 0; is_right && i < out.size(); ++i) {
    const Json& type = types->as_array()[i];
    const std::string word = type.is_string() ? type.as_string() : "";
    out[i] = word == "attention" || word == "full_attention";
    is_right = out[i] || word == "mamba" || word == "linear_attention";
  }
  if (!is_right) {
    reader.problem(cat(key, " must say of each of the ", num_layers,
                       " layers whether it is \"attention\" (or full_attention) or \"mamba\" (or "
                       "linear_attention)"));
  }
  return out;
}

/// Experts beside a shared MLP, or where there are none that MLP alone.
void add_mlps(ConfigReader& reader, DecoderConfig& config) {
  const int64_t shared = reader.size("shared_intermediate_size", 1024);
  if (reader.count("num_local_experts", 8) == 0) {
    config.intermediate_size = shared;
    return;
  }
  moe::MoEConfig moe = read_granite_experts(reader, config);
  moe.n_shared_experts = 1;
  moe.shared_expert_inter_dim = shared;
  config.moe = moe;
  use_experts_from(config, 0);
}

DecoderConfig read_granitemoehybrid(ConfigReader& reader) {
  DecoderConfig config = read_granite_kind(reader);
  config.mamba2 = read_bamba_mamba(reader, config);
  add_mlps(reader, config);
  const std::string places = reader.text("position_embedding_type", "");
  if (places != "rope") {
    if (!places.empty() && places != "nope") {
      reader.problem(
          cat("position_embedding_type '", places, "' is not known; rope, nope or null"));
    }
    for (LayerOptions& layer : config.layers) layer.rope = -1;
  }
  use_mamba_beside(config, read_attention_types(reader, config.num_layers()));
  return config;
}

}  // namespace

/// Granite 4: Granite's multipliers, Mamba-2 in most layers and attention in the others, which
/// seldom rotates, experts beside a shared MLP or that MLP alone.
extern const Family kGraniteMoeHybrid{
    .architecture = "GraniteMoeHybridForCausalLM",
    .model_type = "granitemoehybrid",
    .config_class = "GraniteMoeHybridConfig",
    .layer_class = "GraniteMoeHybridDecoderLayer",
    .experts_class = "GraniteMoeHybridExperts",
    .read_config = read_granitemoehybrid,
    .names = {.recurrence = "mamba",
              .mlp = "shared_mlp",
              .gate_up = "input_linear",
              .down = "output_linear",
              .moe = "block_sparse_moe",
              .router = "router.layer",
              .experts = "",
              .are_experts_stacked = true,
              .stacked_up = "input_linear.weight",
              .stacked_down = "output_linear.weight",
              .shared_experts = "shared_mlp",
              .are_shared_beside = true,
              .shared_gate_up = "input_linear",
              .shared_down = "output_linear"},
    .flops = hybrid_flops,
};

}  // namespace automodel::models::decoder
