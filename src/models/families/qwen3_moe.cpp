#include <vector>

#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_qwen3_moe(ConfigReader& reader) {
  // transformers' class has no default head_dim; an absent one is hidden_size / heads.
  DecoderConfig config = read_common(reader, {.max_positions = 32768});
  config.qk_norm = QkNorm::kPerHead;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  // One window for all layers, as in transformers.
  const int64_t window = read_requested_window(reader, 4096);
  set_window(config, window);
  add_rope(reader, config, {});

  moe::MoEConfig moe = read_experts(reader, config,
                                    {.num_experts_alias = "num_local_experts",
                                     .default_num_experts = 128,
                                     .default_inner_dim = 768,
                                     .default_num_chosen = 8});
  moe.softmax_before_topk = true;
  moe.norm_topk_prob = reader.flag("norm_topk_prob", false);
  moe.aux_loss_coeff = reader.number("router_aux_loss_coef", 0.001);
  config.moe = moe;
  use_experts_by_step(reader, config);
  return config;
}

}  // namespace

/// Qwen 3 with experts: scores by softmax, then the best ones; no shared experts.
extern const Family kQwen3Moe{
    .architecture = "Qwen3MoeForCausalLM",
    .model_type = "qwen3_moe",
    .config_class = "Qwen3MoeConfig",
    .layer_class = "Qwen3MoeDecoderLayer",
    .experts_class = "Qwen3MoeExperts",
    .classifier = "Qwen3MoeForSequenceClassification",
    .read_config = read_qwen3_moe,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
