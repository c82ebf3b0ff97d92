#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

/// A window, unless it is null, in the layers from max_window_layers on or those that layer_types
/// names.
void read_windows(ConfigReader& reader, DecoderConfig& config) {
  const bool is_off = reader.json().contains("sliding_window") && !reader.has("sliding_window");
  const int64_t window = is_off ? 0 : reader.size("sliding_window", 4096);
  const int64_t first = reader.count("max_window_layers", 62);
  add_windows(reader, config, window, [&](int64_t layer) { return layer >= first; });
}

DecoderConfig read_dots1(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.requires_kv_heads = false});
  config.qk_norm = QkNorm::kPerHead;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  read_windows(reader, config);
  add_rope(reader, config, {});
  add_corrected_experts(reader, config,
                        {.keys = {.num_experts = "n_routed_experts",
                                  .num_experts_alias = "num_local_experts",
                                  .default_inner_dim = 1408},
                         .norm_topk_prob = false,
                         .num_dense = 0});
  return config;
}

}  // namespace

/// dots.llm1: Qwen 3's attention with DeepSeek V3's experts.
extern const Family kDots1{
    .architecture = "Dots1ForCausalLM",
    .model_type = "dots1",
    .config_class = "Dots1Config",
    .layer_class = "Dots1DecoderLayer",
    .experts_class = "Dots1Experts",
    .read_config = read_dots1,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
