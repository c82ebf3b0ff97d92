#include "models/families/bailing_kind.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_bailing_moe_v2(ConfigReader& reader) {
  return read_bailing_kind(reader);
}

}  // namespace

/// Ling 2.0: DeepSeek's experts with GLM 4.5's attention; q, k and v are one tensor.
extern const Family kBailingMoeV2{
    .architecture = "BailingMoeV2ForCausalLM",
    .model_type = "bailing_moe",
    .module = "bailing_moe_v2",
    .config_class = "BailingMoeV2Config",
    .layer_class = "BailingMoeV2DecoderLayer",
    .experts_class = "BailingMoeV2SparseMoeBlock",
    .upstream = {.config_class =
                     "nemo_automodel.components.models.ling_v2.config.BailingMoeV2Config"},
    .read_config = read_bailing_moe_v2,
    .names = kBailingNames,
    .aliases = kBailingAliases,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
