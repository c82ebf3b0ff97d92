#include <cstdint>
#include <vector>

#include "core/text.h"
#include "models/decoder/family.h"
#include "models/families/hybrid_kind.h"

namespace automodel::models::decoder {

namespace {

/// Which layers have attention: those whose numbers `attn_layer_indices` lists.
std::vector<bool> read_attention_indices(ConfigReader& reader, int64_t num_layers) {
  constexpr const char* kIndices = "attn_layer_indices";
  std::vector<bool> out(static_cast<size_t>(num_layers), false);
  const Json* listed = reader.find(kIndices);
  if (listed == nullptr) return out;
  bool is_right = listed->is_array();
  for (size_t i = 0; is_right && i < listed->size(); ++i) {
    const Json& index = listed->as_array()[i];
    is_right = index.is_int() && index.as_int() >= 0 && index.as_int() < num_layers;
    if (is_right) out[static_cast<size_t>(index.as_int())] = true;
  }
  if (!is_right) {
    reader.problem(cat(kIndices, " must be a list of numbers of layers, 0 to ", num_layers - 1));
  }
  return out;
}

DecoderConfig read_bamba(ConfigReader& reader) {
  DecoderConfig config =
      read_common(reader, {.max_positions = 262144, .norm_eps = 1e-5, .padding_idx = 0});
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  config.has_mlp_bias = reader.flag("mlp_bias", false);
  config.mamba2 = read_bamba_mamba(reader, config);
  if (reader.number("z_loss_coefficient", 0) != 0) {
    reader.problem(
        "z_loss_coefficient of the model is not in this version; 0 turns it off (the recipe's "
        "loss_fn.z_loss_coef is one)");
  }
  // transformers' class rotates half of the dims, whatever partial_rotary_factor says.
  add_rope(reader, config,
           {.partial_key = "", .has_partial_default = true, .partial_default = 0.5});
  use_mamba_beside(config, read_attention_indices(reader, config.num_layers()));
  return config;
}

}  // namespace

/// Bamba: Mamba-2 and in a few layers attention, half of whose dims rotate; an MLP in each.
extern const Family kBamba{
    .architecture = "BambaForCausalLM",
    .model_type = "bamba",
    .config_class = "BambaConfig",
    .layer_class = "BambaDecoderLayer",
    .read_config = read_bamba,
    .names = {.final_norm = "model.final_layernorm",
              .recurrence = "mamba",
              .mlp = "feed_forward",
              .mlp_pre_norm = "pre_ff_layernorm"},
    .flops = hybrid_flops,
};

}  // namespace automodel::models::decoder
