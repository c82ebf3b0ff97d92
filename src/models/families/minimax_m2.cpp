#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_minimax_m2(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.head_dim = 128, .max_positions = 196608});
  config.qk_norm = QkNorm::kWholeProjection;
  // Released files give the number of rotated dims of a head, not their share.
  const auto rotated = static_cast<double>(reader.size("rotary_dim", config.head_dim));
  add_rope(reader, config,
           {.theta = 5e6,
            .has_partial_default = true,
            .partial_default = rotated / static_cast<double>(config.head_dim)});

  moe::MoEConfig moe = read_experts(reader, config,
                                    {.num_experts = "num_local_experts",
                                     .num_experts_alias = "num_experts",
                                     .default_num_experts = 256,
                                     .inner_dim = "intermediate_size",
                                     .default_inner_dim = 1536,
                                     .default_num_chosen = 8});
  moe.score_func = moe::ScoreFunction::kSigmoid;
  moe.has_correction_bias = true;
  moe.is_router_float32 = true;
  moe.norm_topk_prob = true;
  if (reader.text("scoring_func", "sigmoid") != "sigmoid") {
    reader.problem("scoring_func other than sigmoid is not built in this version");
  }
  refuse_router_jitter(reader);
  config.moe = moe;
  use_experts_from(config, 0);
  return config;
}

}  // namespace

/// MiniMax M2: q and k normed over all heads together, partial rotation, sigmoid scores with a
/// correction for the choice, the chosen ones rescaled to sum to one.
extern const Family kMiniMaxM2{
    .architecture = "MiniMaxM2ForCausalLM",
    .model_type = "minimax_m2",
    .config_class = "MiniMaxM2Config",
    .layer_class = "MiniMaxM2DecoderLayer",
    .experts_class = "MiniMaxM2Experts",
    .read_config = read_minimax_m2,
    .names = {.mlp = "block_sparse_moe",
              .correction = "e_score_correction_bias",
              .expert_gate = "w1",
              .expert_up = "w3",
              .expert_down = "w2"},
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
