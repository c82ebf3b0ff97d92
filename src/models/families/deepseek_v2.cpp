#include "core/text.h"
#include "models/decoder/family.h"
#include "models/decoder/latent_reader.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

/// Keys of the released files whose other values mean another router.
void check_router(ConfigReader& reader) {
  if (reader.flag("norm_topk_prob", false)) {
    reader.problem(
        "norm_topk_prob true is not in this version: transformers' DeepSeek V2 never divides by "
        "the scores' sum");
  }
  if (reader.text("scoring_func", "softmax") != "softmax") {
    reader.problem("scoring_func other than softmax is not in this version for DeepSeek V2");
  }
  if (reader.size("moe_layer_freq", 1) != 1) {
    reader.problem("moe_layer_freq other than 1 is not in this version");
  }
}

void read_groups(ConfigReader& reader, moe::MoEConfig& moe, const MoEKeys& keys) {
  const std::string method = reader.text("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    read_expert_groups(reader, moe, {.keys = keys});
    moe.are_groups_by_best = true;
  } else if (method != "greedy") {
    reader.problem(
        cat("topk_method '", method, "' is not known here; known: greedy, group_limited_greedy"));
  }
}

DecoderConfig read_deepseek_v2(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.requires_kv_heads = false, .head_dim = 64});
  add_latent_attention(reader, config, {.reads_interleaving = false});
  config.has_mlp_bias = reader.flag("mlp_bias", false);
  const MoEKeys keys = {.num_experts = "n_routed_experts",
                        .num_experts_alias = "num_experts",
                        .default_num_experts = 64,
                        .default_inner_dim = 1407};
  moe::MoEConfig moe = read_experts(reader, config, keys);
  moe.n_shared_experts = reader.size("n_shared_experts", 2);
  moe.shared_expert_bias = config.has_mlp_bias;
  moe.softmax_before_topk = true;
  moe.is_router_float32 = true;
  moe.route_scale = reader.number("routed_scaling_factor", 1.0);
  read_groups(reader, moe, keys);
  check_router(reader);
  config.moe = moe;
  use_experts_from(config, reader.count("first_k_dense_replace", 0));
  return config;
}

}  // namespace

/// DeepSeek V2 (also V2 Lite, DeepSeek Coder V2): latent attention, experts by softmax scores,
/// perhaps of the best groups only, shared experts, dense first layers.
extern const Family kDeepseekV2{
    .architecture = "DeepseekV2ForCausalLM",
    .model_type = "deepseek_v2",
    .config_class = "DeepseekV2Config",
    .layer_class = "DeepseekV2DecoderLayer",
    .experts_class = "DeepseekV2Experts",
    .classifier = "DeepseekV2ForSequenceClassification",
    .read_config = read_deepseek_v2,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
