#include "models/decoder/family.h"
#include "models/families/gemma2_kind.h"

namespace automodel::models::decoder {

namespace {

/// Rope 0 for full layers, rope 1 for sliding ones. New form: rope_parameters by layer type; old
/// form: rope_theta, rope_scaling (full layers) and rope_local_base_freq.
void add_ropes(ConfigReader& reader, DecoderConfig& config, const std::vector<bool>& sliding) {
  const Json* nested = reader.find("rope_parameters");
  const auto parameters = [&](const char* type) -> const Json* {
    const Json* found = nested == nullptr ? nullptr : nested->find(type);
    return found == nullptr || found->is_null() ? nullptr : found;
  };
  const Json* full =
      reader.has("rope_scaling") ? reader.find("rope_scaling") : parameters("full_attention");
  config.ropes = {read_rope(reader, full, config, {.theta = 1e6}),
                  read_rope(reader, parameters("sliding_attention"), config,
                            {.theta = 1e4, .theta_key = "rope_local_base_freq"})};
  set_ropes_by_window(config, sliding);
}

}  // namespace

DecoderConfig read_gemma3(ConfigReader& reader) {
  DecoderConfig config = read_gemma2_kind(reader, 131072);
  config.qk_norm = QkNorm::kPerHead;
  config.final_softcap = reader.not_negative("final_logit_softcapping", 0);
  const int64_t period =
      reader.size("sliding_window_pattern", reader.size("_sliding_window_pattern", 6));
  const std::vector<bool> sliding =
      add_windows(reader, config, reader.size("sliding_window", 4096),
                  [&](int64_t layer) { return (layer + 1) % period != 0; });
  add_ropes(reader, config, sliding);
  return config;
}

/// Gemma 3's text model: q and k normed per head, sliding layers with a theta of their own.
extern const Family kGemma3{
    .architecture = "Gemma3ForCausalLM",
    .model_type = "gemma3_text",
    .module = "gemma3",
    .config_class = "Gemma3TextConfig",
    .layer_class = "Gemma3DecoderLayer",
    .classifier = "Gemma3TextForSequenceClassification",
    .read_config = read_gemma3,
    .names = kGemmaKindNames,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
