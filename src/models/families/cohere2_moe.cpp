#include <algorithm>
#include <string>
#include <vector>

#include "core/text.h"
#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"
#include "models/families/cohere_kind.h"

namespace automodel::models::decoder {

namespace {

/// A window in layers that rotate, and neither in every fourth; the dense layers before the experts
/// have a pattern of their own, and all rotate where it leaves none of them a window.
void add_cohere2_layers(ConfigReader& reader, DecoderConfig& config, int64_t num_dense) {
  const int64_t dense_pattern = reader.size("prefix_dense_sliding_window_pattern", 1);
  const int64_t pattern = reader.size("sliding_window_pattern", 4);
  const std::vector<bool> slides =
      add_windows(reader, config, reader.size("sliding_window", 4096), [&](int64_t layer) {
        return layer < num_dense ? (layer + 1) % dense_pattern != 0
                                 : (layer - num_dense + 1) % pattern != 0;
      });
  std::vector<bool> rotates = slides;
  for (size_t i = 0; i < rotates.size(); ++i) {
    if (dense_pattern == 1 && !config.layers[i].is_moe) rotates[i] = true;
  }
  rotate_windows_alone(config, rotates);
}

void add_cohere2_experts(ConfigReader& reader, DecoderConfig& config, int64_t num_dense) {
  moe::MoEConfig moe = read_experts(reader, config,
                                    {.default_num_experts = 8,
                                     .inner_dim = "intermediate_size",
                                     .default_inner_dim = 22528,
                                     .default_num_chosen = 2});
  const std::string scores = reader.text("expert_selection_fn", "softmax");
  if (scores == "sigmoid") {
    moe.score_func = moe::ScoreFunction::kSigmoid;
    moe.is_choice_by_logits = true;
    moe.norm_topk_prob = reader.flag("norm_topk_prob", true);
    moe.topk_norm_eps = 0;
  } else if (scores != "softmax") {
    reader.problem(cat("expert_selection_fn '", scores, "' is not known; softmax, sigmoid"));
  }
  moe.n_shared_experts = reader.count("num_shared_experts", 0);
  const std::string sum = reader.text("shared_expert_combination_strategy", "average");
  if (sum != "average" && sum != "sum") {
    reader.problem(
        cat("shared_expert_combination_strategy '", sum, "' is not known; average, sum"));
  }
  moe.is_shared_averaged = sum == "average" && moe.n_shared_experts > 0;
  config.moe = moe;
  use_experts_from(config, num_dense);
  read_mlp_layer_types(reader, config);
  const auto is_dense = [](const LayerOptions& layer) { return !layer.is_moe; };
  if (std::ranges::any_of(config.layers, is_dense)) {
    config.intermediate_size = reader.size("prefix_dense_intermediate_size");
  }
}

DecoderConfig read_cohere2_moe(ConfigReader& reader) {
  DecoderConfig config = read_cohere_kind(reader, 10000.0, 128);
  if (reader.has("rms_norm_eps")) {
    config.norm = NormKind::kRms;
    config.norm_eps = reader.not_negative("rms_norm_eps", 0);
  }
  const int64_t num_dense = reader.count("first_k_dense_replace", 0);
  add_cohere2_experts(reader, config, num_dense);
  add_cohere2_layers(reader, config, num_dense);
  return config;
}

}  // namespace

/// Command R7B's kind with experts: those of the highest logits, beside shared ones with which they
/// are averaged, behind dense layers.
extern const Family kCohere2Moe{
    .architecture = "Cohere2MoeForCausalLM",
    .model_type = "cohere2_moe",
    .config_class = "Cohere2MoeConfig",
    .layer_class = "Cohere2MoeDecoderLayer",
    .experts_class = "Cohere2MoeExperts",
    .read_config = read_cohere2_moe,
    .names = kCohereNames,
    .flops = layered_flops,
};

}  // namespace automodel::models::decoder
