#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_deepseek(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.requires_kv_heads = false});
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  add_rope(reader, config, {});
  if (!reader.has("n_routed_experts")) return config;
  moe::MoEConfig moe =
      read_experts(reader, config, {.num_experts = "n_routed_experts", .default_inner_dim = 1407});
  moe.n_shared_experts = reader.count("n_shared_experts", 0);
  moe.softmax_before_topk = true;
  moe.norm_topk_prob = reader.flag("norm_topk_prob", false);
  moe.aux_loss_coeff = reader.number("aux_loss_alpha", 0.001);
  if (reader.text("scoring_func", "softmax") != "softmax") {
    reader.problem("scoring_func other than softmax is not in this version for DeepSeek MoE");
  }
  if (reader.size("moe_layer_freq", 1) != 1) {
    reader.problem("moe_layer_freq other than 1 is not in this version");
  }
  config.moe = moe;
  use_experts_from(config, reader.count("first_k_dense_replace", 0));
  return config;
}

}  // namespace

/// DeepSeek MoE 16B: Llama's attention, experts by softmax scores beside shared ones, dense first
/// layers. Of code that comes with the released files.
extern const Family kDeepseek{
    .architecture = "DeepseekForCausalLM",
    .model_type = "deepseek",
    .config_class = "DeepseekConfig",
    .layer_class = "DeepseekDecoderLayer",
    .experts_class = "DeepseekMoE",
    .read_config = read_deepseek,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
