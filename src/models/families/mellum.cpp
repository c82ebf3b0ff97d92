#include <vector>

#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

/// Rope 0 for full layers, rope 1 for those with a window, each as rope_parameters has it by the
/// layer's type; of an absent one the class's own.
void add_mellum_ropes(ConfigReader& reader, DecoderConfig& config,
                      const std::vector<bool>& sliding) {
  const Json* parameters = reader.find("rope_parameters");
  if (parameters != nullptr && !parameters->is_object()) {
    reader.problem("rope_parameters must be an object with one for each type of layer");
    parameters = nullptr;
  }
  const auto rope = [&](const char* type, double theta) {
    const Json* found = parameters == nullptr ? nullptr : parameters->find(type);
    return read_rope(reader, found, config, {.theta = theta, .theta_key = ""});
  };
  config.ropes = {rope("full_attention", 5e5), rope("sliding_attention", 1e4)};
  set_ropes_by_window(config, sliding);
}

DecoderConfig read_mellum(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.head_dim = 128, .max_positions = 131072});
  config.qk_norm = QkNorm::kPerHead;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  const std::vector<bool> sliding = add_windows(reader, config, reader.size("sliding_window", 1024),
                                                [](int64_t) { return false; });
  add_mellum_ropes(reader, config, sliding);

  moe::MoEConfig moe = read_experts(reader, config,
                                    {.num_experts_alias = "num_local_experts",
                                     .default_num_experts = 64,
                                     .default_inner_dim = 896,
                                     .default_num_chosen = 8});
  moe.softmax_before_topk = true;
  moe.norm_topk_prob = reader.flag("norm_topk_prob", true);
  moe.aux_loss_coeff = reader.number("router_aux_loss_coef", 0.001);
  config.moe = moe;
  use_experts_from(config, 0);
  read_mlp_layer_types(reader, config);
  return config;
}

}  // namespace

/// Mellum 2: Qwen 3 with experts, and layers with a window that have a rotation of their own.
extern const Family kMellum{
    .architecture = "MellumForCausalLM",
    .model_type = "mellum",
    .config_class = "MellumConfig",
    .layer_class = "MellumDecoderLayer",
    .experts_class = "MellumExperts",
    .read_config = read_mellum,
    .flops = layered_flops,
};

}  // namespace automodel::models::decoder
