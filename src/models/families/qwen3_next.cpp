#include "models/decoder/family.h"
#include "models/families/qwen_delta_kind.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_qwen3_next(ConfigReader& reader) {
  DecoderConfig config = read_qwen_delta_kind(reader, {.intermediate_size = 5632});
  config.gated_delta->is_grouped = true;
  const Json* count = reader.find("num_experts");
  if (count != nullptr && count->is_int() && count->as_int() == 0) return config;
  moe::MoEConfig moe = read_qwen_delta_experts(
      reader, config,
      {.default_num_experts = 512, .default_inner_dim = 512, .default_num_chosen = 10});
  moe.norm_topk_prob = reader.flag("norm_topk_prob", true);
  config.moe = moe;
  use_experts_by_step(reader, config);
  return config;
}

}  // namespace

/// Qwen 3 Next: gated delta nets, and attention with gates in every fourth layer; experts.
extern const Family kQwen3Next{
    .architecture = "Qwen3NextForCausalLM",
    .model_type = "qwen3_next",
    .config_class = "Qwen3NextConfig",
    .layer_class = "Qwen3NextDecoderLayer",
    .experts_class = "Qwen3NextExperts",
    .classifier = "Qwen3NextForSequenceClassification",
    .read_config = read_qwen3_next,
    .names = kQwenDeltaNames,
    .kept_prefixes = {"mtp."},
    .flops = qwen_delta_flops,
};

}  // namespace automodel::models::decoder
