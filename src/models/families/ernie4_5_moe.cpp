#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"
#include "models/families/ernie_kind.h"

namespace automodel::models::decoder {

namespace {

/// Makes every moe_layer_interval-th layer between two layers one of experts.
void read_expert_layers(ConfigReader& reader, DecoderConfig& config) {
  const int64_t first = reader.count("moe_layer_start_index", 1);
  const int64_t interval = reader.size("moe_layer_interval", 1);
  const auto stated = static_cast<int64_t>(reader.number("moe_layer_end_index", -1));
  const int64_t last = stated == -1 ? config.num_layers() - 1 : stated;
  for (int64_t i = 0; i < config.num_layers(); ++i) {
    const bool is_within = i >= first && i <= last;
    config.layers[static_cast<size_t>(i)].is_moe = is_within && (i + 1) % interval == 0;
  }
}

DecoderConfig read_ernie4_5_moe(ConfigReader& reader) {
  DecoderConfig config = read_ernie_kind(reader, 0);
  config.has_head_bias = config.has_mlp_bias;
  if (config.has_head_bias && config.is_head_tied) {
    reader.problem(
        "use_bias true with tie_word_embeddings true is not in this version: the head has a bias");
    config.is_head_tied = false;
  }
  moe::MoEConfig moe = read_experts(reader, config,
                                    {.num_experts = "moe_num_experts",
                                     .num_experts_alias = "num_experts",
                                     .default_num_experts = 64,
                                     .default_inner_dim = 1536,
                                     .num_chosen = either(reader, "moe_k", "num_experts_per_tok"),
                                     .default_num_chosen = 6});
  moe.n_shared_experts = reader.count("moe_num_shared_experts", 2);
  moe.shared_expert_bias = config.has_mlp_bias;
  moe.score_func = moe::ScoreFunction::kSoftmaxWithBias;
  moe.has_correction_bias = true;
  moe.is_router_float32 = true;
  moe.norm_topk_prob = true;
  constexpr double kSmallestSum = 1e-6;  // of a token's weights, which such a bound never meets
  if (reader.number("moe_norm_min", 1e-12) > kSmallestSum) {
    reader.problem("moe_norm_min above 1e-6 is not built in this version");
  }
  moe.aux_loss_coeff = reader.number("router_aux_loss_coef", 0.001);
  moe.gate_bias_update_factor = read_bias_update_factor(reader, 0);
  config.moe = moe;
  config.are_routers_zero_first = true;
  read_expert_layers(reader, config);
  return config;
}

}  // namespace

/// ERNIE 4.5 with experts: softmax scores with a correction for the choice, always rescaled to sum
/// to one, shared experts.
extern const Family kErnie4p5Moe{
    .architecture = "Ernie4_5_MoeForCausalLM",
    .model_type = "ernie4_5_moe",
    .config_class = "Ernie4_5_MoeConfig",
    .layer_class = "Ernie4_5_MoeDecoderLayer",
    .experts_class = "Ernie4_5_MoeExperts",
    .read_config = read_ernie4_5_moe,
    .names = {.correction = "moe_statics.e_score_correction_bias", .is_correction_row = true},
    .kept_prefixes = {"mtp", "model.mtp"},
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
