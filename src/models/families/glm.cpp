#include "models/decoder/family.h"
#include "models/families/glm_kind.h"

namespace automodel::models::decoder {

/// GLM 4 9B: neighbouring dims rotated in the first half of a head, gate and up in one tensor.
extern const Family kGlm{
    .architecture = "GlmForCausalLM",
    .model_type = "glm",
    .config_class = "GlmConfig",
    .layer_class = "GlmDecoderLayer",
    .classifier = "GlmForSequenceClassification",
    .read_config = read_glm_kind,
    .names = {.gate_up = "gate_up_proj"},
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
