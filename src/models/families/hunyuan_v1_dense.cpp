#include "models/decoder/family.h"
#include "models/families/hunyuan_kind.h"

namespace automodel::models::decoder {

/// HunYuan V1's dense models: q and k normed per head behind their rotation.
extern const Family kHunYuanDense{
    .architecture = "HunYuanDenseV1ForCausalLM",
    .model_type = "hunyuan_v1_dense",
    .config_class = "HunYuanDenseV1Config",
    .layer_class = "HunYuanDenseV1DecoderLayer",
    .classifier = "HunYuanDenseV1ForSequenceClassification",
    .read_config = read_hunyuan_kind,
    .names = {.q_norm = "query_layernorm", .k_norm = "key_layernorm"},
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
