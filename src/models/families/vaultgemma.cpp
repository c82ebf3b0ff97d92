#include "models/decoder/family.h"
#include "models/families/gemma2_kind.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_vaultgemma(ConfigReader& reader) {
  DecoderConfig config = read_gemma2(reader);
  config.norm_placement = NormPlacement::kPre;
  return config;
}

}  // namespace

/// VaultGemma: Gemma 2 without the norms behind branches.
extern const Family kVaultGemma{
    .architecture = "VaultGemmaForCausalLM",
    .model_type = "vaultgemma",
    .config_class = "VaultGemmaConfig",
    .layer_class = "VaultGemmaDecoderLayer",
    .read_config = read_vaultgemma,
    .names = {.mlp_pre_norm = "pre_feedforward_layernorm"},
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
