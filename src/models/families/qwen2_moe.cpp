#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_qwen2_moe(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.max_positions = 32768});
  config.has_qkv_bias = reader.flag("qkv_bias", true);
  const int64_t first_full = reader.count("max_window_layers", 28);
  add_windows(reader, config, read_requested_window(reader, 4096),
              [&](int64_t layer) { return layer % 2 == 0 && layer < first_full; });
  add_rope(reader, config, {});

  moe::MoEConfig moe =
      read_experts(reader, config,
                   {.default_num_experts = 60, .default_inner_dim = 1408, .default_num_chosen = 4});
  moe.softmax_before_topk = true;
  moe.norm_topk_prob = reader.flag("norm_topk_prob", false);
  moe.aux_loss_coeff = reader.number("router_aux_loss_coef", 0.001);
  moe.n_shared_experts = 1;
  moe.shared_expert_inter_dim = reader.size("shared_expert_intermediate_size", 5632);
  moe.shared_expert_gate = true;
  config.moe = moe;
  use_experts_by_step(reader, config);
  return config;
}

}  // namespace

/// Qwen 2 with experts (also Qwen 1.5's): scores by softmax, then the best ones, and a shared
/// expert with a gate.
extern const Family kQwen2Moe{
    .architecture = "Qwen2MoeForCausalLM",
    .model_type = "qwen2_moe",
    .config_class = "Qwen2MoeConfig",
    .layer_class = "Qwen2MoeDecoderLayer",
    .experts_class = "Qwen2MoeExperts",
    .classifier = "Qwen2MoeForSequenceClassification",
    .read_config = read_qwen2_moe,
    .names = {.shared_experts = "shared_expert"},
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
