#include "core/text.h"
#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

/// Rope 0 for full layers, rope 1 for sliding ones. New form: rope_parameters by layer type; old
/// form: rope_theta and rope_scaling, which are those of full layers.
void add_ropes(ConfigReader& reader, DecoderConfig& config, const std::vector<bool>& sliding) {
  const Json* nested = reader.find("rope_parameters");
  if (nested != nullptr && nested->is_object() && nested->contains("rope_type")) {
    reader.problem(
        "rope_parameters must be by layer type: an object with full_attention and "
        "sliding_attention");
  }
  const auto parameters = [&](const char* type) -> const Json* {
    const bool is_there = nested != nullptr && nested->is_object();
    const Json* found = is_there ? nested->find(type) : nullptr;
    return found == nullptr || found->is_null() ? nullptr : found;
  };
  const Json* full =
      reader.has("rope_scaling") ? reader.find("rope_scaling") : parameters("full_attention");
  constexpr double kTheta = 500000.0;
  config.ropes = {read_rope(reader, full, config, {.theta = kTheta}),
                  read_rope(reader, parameters("sliding_attention"), config,
                            {.theta = kTheta, .theta_key = ""})};
  for (size_t i = 0; i < sliding.size(); ++i) config.layers[i].rope = sliding[i] ? 1 : 0;
}

DecoderConfig read_olmo3(ConfigReader& reader) {
  DecoderConfig config =
      read_common(reader, {.requires_kv_heads = false, .norm_eps = 1e-5, .padding_idx = 1});
  config.norm_placement = NormPlacement::kPost;
  config.qk_norm = QkNorm::kWholeProjection;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  const std::vector<bool> sliding = add_windows(reader, config, reader.size("sliding_window", 4096),
                                                [](int64_t layer) { return (layer + 1) % 4 != 0; });
  add_ropes(reader, config, sliding);
  return config;
}

}  // namespace

/// OLMo 3: OLMo 2 with a window in three of four layers, which have a rotation of their own.
extern const Family kOlmo3{
    .architecture = "Olmo3ForCausalLM",
    .model_type = "olmo3",
    .config_class = "Olmo3Config",
    .layer_class = "Olmo3DecoderLayer",
    .classifier = "Olmo3ForSequenceClassification",
    .read_config = read_olmo3,
    .names = kPostNormNames,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
