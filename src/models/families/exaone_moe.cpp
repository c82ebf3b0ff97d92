#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"
#include "models/families/exaone_kind.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_exaone_moe(ConfigReader& reader) {
  DecoderConfig config = read_exaone_kind(reader);
  add_corrected_experts(reader, config,
                        {.keys = {.num_experts_alias = "num_local_experts",
                                  .default_num_experts = 64,
                                  .default_inner_dim = 1024,
                                  .default_num_chosen = 8},
                         .own_keys = {.num_shared = "num_shared_experts"},
                         .route_scale = 2.5});
  read_mlp_layer_types(reader, config);
  return config;
}

}  // namespace

/// K-EXAONE: EXAONE 4's attention with norms before the branches, and DeepSeek V3's experts.
extern const Family kExaoneMoe{
    .architecture = "ExaoneMoeForCausalLM",
    .model_type = "exaone_moe",
    .config_class = "ExaoneMoeConfig",
    .layer_class = "ExaoneMoeDecoderLayer",
    .experts_class = "ExaoneMoeExperts",
    .upstream = {.architecture = "ExaoneMoEForCausalLM"},  // of the released files
    .read_config = read_exaone_moe,
    .names = {.correction = "e_score_correction_bias"},
    .kept_prefixes = {"mtp."},
    .stand_ins = {{{"mlp.e_score_correction_bias", "mlp.gate.e_score_correction_bias"}}},
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
