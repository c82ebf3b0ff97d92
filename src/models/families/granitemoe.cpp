#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"
#include "models/families/granite_kind.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_granitemoe(ConfigReader& reader) {
  DecoderConfig config = read_granite_kind(reader);
  config.moe = read_granite_experts(reader, config);
  use_experts_from(config, 0);
  return config;
}

DecoderConfig read_granitemoeshared(ConfigReader& reader) {
  DecoderConfig config = read_granitemoe(reader);
  const int64_t shared = reader.count("shared_intermediate_size", 0);
  config.moe->n_shared_experts = shared > 0 ? 1 : 0;
  config.moe->shared_expert_inter_dim = shared;
  return config;
}

DecoderConfig read_granitemoe_swa(ConfigReader& reader) {
  DecoderConfig config = read_granitemoeshared(reader);
  add_granite_windows(reader, config, 128);
  return config;
}

constexpr HfNames kNames = {.mlp = "block_sparse_moe",
                            .router = "router.layer",
                            .experts = "",
                            .are_experts_stacked = true,
                            .stacked_up = "input_linear.weight",
                            .stacked_down = "output_linear.weight",
                            .shared_experts = "shared_mlp",
                            .are_shared_beside = true,
                            .shared_gate_up = "input_linear",
                            .shared_down = "output_linear"};

}  // namespace

/// Granite 3 with experts: Granite's multipliers, the chosen experts' weights a softmax over their
/// scores.
extern const Family kGraniteMoe{
    .architecture = "GraniteMoeForCausalLM",
    .model_type = "granitemoe",
    .config_class = "GraniteMoeConfig",
    .layer_class = "GraniteMoeDecoderLayer",
    .experts_class = "GraniteMoeExperts",
    .read_config = read_granitemoe,
    .names = kNames,
    .flops = gated_flops,
};

/// Granite MoE with a shared MLP beside the experts, if it has a size.
extern const Family kGraniteMoeShared{
    .architecture = "GraniteMoeSharedForCausalLM",
    .model_type = "granitemoeshared",
    .config_class = "GraniteMoeSharedConfig",
    .layer_class = "GraniteMoeSharedDecoderLayer",
    .experts_class = "GraniteMoeSharedExperts",
    .read_config = read_granitemoeshared,
    .names = kNames,
    .flops = gated_flops,
};

/// Granite MoE with attention sinks, a window in all but every fourth layer, and a theta a layer.
extern const Family kGraniteMoeSwa{
    .architecture = "GraniteMoeSWAForCausalLM",
    .model_type = "granitemoe_swa",
    .config_class = "GraniteMoeSWAConfig",
    .layer_class = "GraniteMoeSWADecoderLayer",
    .experts_class = "GraniteMoeSWAExperts",
    .read_config = read_granitemoe_swa,
    .names = {.mlp = "block_sparse_moe",
              .router = "router",
              .are_experts_stacked = true,
              .shared_experts = "shared_mlp",
              .are_shared_beside = true,
              .shared_gate_up = "input_linear",
              .shared_down = "output_linear"},
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
