#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_mixtral(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.max_positions = 131072, .norm_eps = 1e-5});
  const int64_t window = reader.size("sliding_window", 0);
  set_window(config, window);
  add_rope(reader, config, {.theta = 1e6});

  moe::MoEConfig moe = read_experts(reader, config,
                                    {.num_experts = "num_local_experts",
                                     .num_experts_alias = "num_experts",
                                     .default_num_experts = 8,
                                     .inner_dim = "intermediate_size",
                                     .default_num_chosen = 2});
  moe.softmax_before_topk = true;
  moe.norm_topk_prob = true;
  refuse_router_jitter(reader);
  config.moe = moe;
  use_experts_from(config, 0);
  return config;
}

}  // namespace

/// Mixtral: scores by softmax, the chosen ones rescaled to sum to one.
extern const Family kMixtral{
    .architecture = "MixtralForCausalLM",
    .model_type = "mixtral",
    .config_class = "MixtralConfig",
    .layer_class = "MixtralDecoderLayer",
    .experts_class = "MixtralExperts",
    .classifier = "MixtralForSequenceClassification",
    .read_config = read_mixtral,
    .names = {.mlp = "block_sparse_moe",
              .expert_gate = "w1",
              .expert_up = "w3",
              .expert_down = "w2"},
    .flops = llama_flops,
};

}  // namespace automodel::models::decoder
