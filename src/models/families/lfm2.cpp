#include <cstdint>
#include <vector>

#include "core/text.h"
#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

/// Sets which layers are short convolutions, by `layer_types`; without it those that
/// `full_attn_idxs` does not list, or none.
void use_short_convs(ConfigReader& reader, DecoderConfig& config) {
  std::vector<bool> is_conv(config.layers.size(), false);
  if (const auto listed = read_layer_types(reader, config.num_layers(), "conv")) {
    is_conv = *listed;
  } else if (reader.has("full_attn_idxs")) {
    is_conv = read_layer_indices(reader, "full_attn_idxs", config.num_layers());
    is_conv.flip();
  }
  for (size_t i = 0; i < is_conv.size(); ++i) {
    if (!is_conv[i]) continue;
    config.layers[i].mixer = Mixer::kShortConv;
    config.layers[i].rope = -1;
  }
}

/// LFM2's options but its MLPs'.
DecoderConfig read_lfm2_kind(ConfigReader& reader) {
  const Json whole = with_renamed_keys(reader, {{"block_ff_dim", "intermediate_size"},
                                                {"tie_embedding", "tie_word_embeddings"},
                                                {"norm_eps", "rms_norm_eps"}});
  ConfigReader own(whole);
  DecoderConfig config = read_common(own, {.max_positions = 128000,
                                           .norm_eps = 1e-5,
                                           .is_head_tied = true,
                                           .has_attention_dropout = false,
                                           .padding_idx = 0});
  config.activation = kernels::Activation::kSilu;  // no key
  config.qk_norm = QkNorm::kPerHead;
  config.short_conv = ShortConvOptions{.num_taps = own.size("conv_L_cache", 3),
                                       .has_bias = own.flag("conv_bias", false)};
  add_rope(own, config, {.theta = 1e6});
  use_short_convs(own, config);
  reader.add_problems_of(own);
  return config;
}

/// The MLPs' width: two thirds of the stated one times a factor, rounded up to whole blocks, unless
/// `block_auto_adjust_ff_dim` is false.
int64_t adjusted_width(ConfigReader& reader, int64_t stated) {
  if (!reader.flag("block_auto_adjust_ff_dim", true)) return stated;
  const auto width = static_cast<int64_t>(2.0 * static_cast<double>(stated) / 3.0);
  const bool is_null =
      reader.json().contains("block_ffn_dim_multiplier") && !reader.has("block_ffn_dim_multiplier");
  if (is_null) return width;
  const double factor = reader.number("block_ffn_dim_multiplier", 1.0);
  const int64_t multiple = reader.size("block_multiple_of", 256);
  const auto scaled = static_cast<int64_t>(factor * static_cast<double>(width));
  return (scaled + multiple - 1) / multiple * multiple;
}

DecoderConfig read_lfm2(ConfigReader& reader) {
  DecoderConfig config = read_lfm2_kind(reader);
  config.intermediate_size = adjusted_width(reader, config.intermediate_size);
  if (config.intermediate_size < 1) {
    reader.problem(cat("block_ffn_dim_multiplier leaves a width of ", config.intermediate_size,
                       "; it must be at least 1"));
    config.intermediate_size = 1;
  }
  return config;
}

DecoderConfig read_lfm2_moe(ConfigReader& reader) {
  DecoderConfig config = read_lfm2_kind(reader);
  moe::MoEConfig moe =
      read_experts(reader, config,
                   {.default_num_experts = 32, .default_inner_dim = 1792, .default_num_chosen = 4});
  moe.score_func = moe::ScoreFunction::kSigmoid;
  moe.has_correction_bias = reader.flag("use_expert_bias", true);
  moe.norm_topk_prob = reader.flag("norm_topk_prob", true);
  moe.topk_norm_eps = 1e-6;
  moe.route_scale = reader.number("routed_scaling_factor", 1.0);
  moe.gate_bias_update_factor = read_bias_update_factor(reader, 0);
  config.moe = moe;
  use_experts_from(config, reader.count("num_dense_layers", 2));
  return config;
}

constexpr HfNames kLfm2Names{.final_norm = "model.embedding_norm",
                             .output = "out_proj",
                             .q_norm = "q_layernorm",
                             .k_norm = "k_layernorm",
                             .recurrence = "conv",
                             .mlp = "feed_forward",
                             .gate = "w1",
                             .up = "w3",
                             .down = "w2",
                             .correction = "expert_bias",
                             .expert_gate = "w1",
                             .expert_up = "w3",
                             .expert_down = "w2",
                             .attention_pre_norm = "operator_norm",
                             .mlp_pre_norm = "ffn_norm"};

}  // namespace

/// LFM2 (Liquid): short convolutions between gates, and attention in some layers, q and k normed
/// per head.
extern const Family kLfm2{
    .architecture = "Lfm2ForCausalLM",
    .model_type = "lfm2",
    .config_class = "Lfm2Config",
    .layer_class = "Lfm2DecoderLayer",
    .read_config = read_lfm2,
    .names = kLfm2Names,
    .flops = hybrid_flops,
};

/// LFM2 with experts: sigmoid scores with a correction for the choice, dense first layers.
extern const Family kLfm2Moe{
    .architecture = "Lfm2MoeForCausalLM",
    .model_type = "lfm2_moe",
    .config_class = "Lfm2MoeConfig",
    .layer_class = "Lfm2MoeDecoderLayer",
    .experts_class = "Lfm2MoeExperts",
    .read_config = read_lfm2_moe,
    .names = kLfm2Names,
    .flops = hybrid_flops,
};

}  // namespace automodel::models::decoder
