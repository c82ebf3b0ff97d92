#include <cmath>
#include <string>
#include <vector>

#include "core/text.h"
#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

void add_afmoe_experts(ConfigReader& reader, DecoderConfig& config) {
  moe::MoEConfig moe =
      read_experts(reader, config,
                   {.default_num_experts = 64, .default_inner_dim = 1408, .default_num_chosen = 6});
  moe.n_shared_experts = reader.size("num_shared_experts", 2);
  moe.score_func = moe::ScoreFunction::kSigmoid;
  moe.has_correction_bias = true;
  moe.norm_topk_prob = true;
  moe.route_scale = reader.number("route_scale", 1.0);
  moe.gate_bias_update_factor = read_bias_update_factor(reader, 0);
  config.moe = moe;
  use_experts_from(config, reader.count("num_dense_layers", 1));
}

/// Findings for keys of the released code that transformers does not read, with other values than
/// what it computes.
void refuse_other_routing(ConfigReader& reader) {
  if (const std::string score = reader.text("score_func", "sigmoid"); score != "sigmoid") {
    reader.problem(cat("score_func '", score, "' is not built; built: sigmoid"));
  }
  if (!reader.flag("route_norm", true)) {
    reader.problem("route_norm false is not built in this version");
  }
  for (const char* key : {"n_group", "topk_group"}) {
    if (reader.size(key, 1) == 1) continue;
    reader.problem(cat(key, " is not built in this version; 1 turns it off"));
  }
}

DecoderConfig read_afmoe(ConfigReader& reader) {
  DecoderConfig config = read_common(
      reader,
      {.requires_kv_heads = false, .head_dim = 128, .max_positions = 16384, .norm_eps = 1e-5});
  config.norm_placement = NormPlacement::kSandwich;
  config.qk_norm = QkNorm::kPerHead;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  config.has_head_gates = config.are_head_gates_wide = true;
  if (reader.flag("mup_enabled", false)) {
    config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  }
  add_rope(reader, config, {});
  const int64_t pattern = reader.size("global_attn_every_n_layers", 4);
  const std::vector<bool> sliding =
      add_windows(reader, config, reader.size("sliding_window", 1024),
                  [&](int64_t layer) { return (layer + 1) % pattern != 0; });
  rotate_windows_alone(config, sliding);
  add_afmoe_experts(reader, config);
  config.are_routers_zero_first = true;
  refuse_other_routing(reader);
  return config;
}

}  // namespace

/// Trinity (Arcee): a window in layers that rotate, and neither in every fourth; a gate for each
/// dim of a head, norms before and after each branch, sigmoid experts with a correction beside
/// shared ones.
extern const Family kAfmoe{
    .architecture = "AfmoeForCausalLM",
    .model_type = "afmoe",
    .config_class = "AfmoeConfig",
    .layer_class = "AfmoeDecoderLayer",
    .experts_class = "AfmoeExperts",
    .read_config = read_afmoe,
    .names = {.head_gates = "gate_proj",
              .router = "router.gate",
              .correction = "expert_bias",
              .attention_post_norm = "post_attention_layernorm",
              .mlp_pre_norm = "pre_mlp_layernorm",
              .mlp_post_norm = "post_mlp_layernorm"},
    .flops = layered_flops,
};

}  // namespace automodel::models::decoder
