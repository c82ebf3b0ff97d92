#include "models/decoder/family.h"
#include "models/families/hybrid_kind.h"

namespace automodel::models::decoder {

namespace {

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
  use_mamba_beside(config, read_layer_indices(reader, "attn_layer_indices", config.num_layers()));
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
