#include "core/text.h"
#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

/// Findings for values of Hy-MT2's further keys that are not computed, here or in transformers.
void refuse_other_forms(ConfigReader& reader, int64_t inner_dim) {
  for (const char* key : {"qk_norm", "moe_router_use_sigmoid", "moe_router_enable_expert_bias"}) {
    if (!reader.flag(key, true)) {
      reader.problem(cat(key, ": false is not built for this family"));
    }
  }
  const int64_t stated = reader.size("expert_hidden_dim", inner_dim);
  if (stated != inner_dim) {
    reader.problem(
        cat("expert_hidden_dim ", stated, " is not the moe_intermediate_size ", inner_dim));
  }
}

DecoderConfig read_hy_v3(ConfigReader& reader) {
  DecoderConfig config =
      read_common(reader, {.head_dim = 128, .max_positions = 131072, .norm_eps = 1e-5});
  config.initializer_range = reader.number("initializer_range", 0.006);
  config.qk_norm = QkNorm::kPerHead;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  config.has_mlp_bias = reader.flag("mlp_bias", false);
  add_rope(reader, config, {.theta = 11158840.0});

  moe::MoEConfig moe = read_experts(reader, config,
                                    {.num_experts_alias = "num_local_experts",
                                     .default_num_experts = 192,
                                     .default_inner_dim = 1536,
                                     .default_num_chosen = 8});
  moe.n_shared_experts = reader.size("num_shared_experts", 1);
  moe.shared_expert_bias = config.has_mlp_bias;
  moe.score_func = moe::ScoreFunction::kSigmoid;
  moe.has_correction_bias = true;
  moe.is_router_float32 = true;
  moe.norm_topk_prob = reader.flag("route_norm", true);
  moe.route_scale = reader.number("router_scaling_factor", 2.826);
  moe.gate_bias_update_factor = read_bias_update_factor(reader, 0);
  refuse_other_forms(reader, moe.moe_inter_dim);
  config.moe = moe;
  use_experts_from(config, reader.count("first_k_dense_replace", 1));
  read_mlp_layer_types(reader, config);
  read_next_token_layers(reader, config);
  return config;
}

}  // namespace

/// Hy3 and Hy-MT2: q and k normed per head, sigmoid scores with a correction for the choice, shared
/// experts, a dense first layer.
extern const Family kHyV3{
    .architecture = "HYV3ForCausalLM",
    .model_type = "hy_v3",
    .config_class = "HYV3Config",
    .layer_class = "HYV3DecoderLayer",
    .experts_class = "HYV3Experts",
    .upstream = {.config_class = "nemo_automodel.components.models.hy_v3.config.HYV3Config"},
    .read_config = read_hy_v3,
    .names = {.router = "router.gate", .correction = "expert_bias", .shared_experts = "shared_mlp"},
    .module_names = {{{".mlp.shared_mlp.", ".mlp.shared_experts."}}},
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
