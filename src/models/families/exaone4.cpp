#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_exaone4(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.norm_eps = 1e-5});
  config.norm_placement = NormPlacement::kPost;
  config.qk_norm = QkNorm::kPerHead;
  add_rope(reader, config, {});
  // Without a window all layers are full ones that rotate.
  if (reader.json().contains("sliding_window") && !reader.has("sliding_window")) return config;
  const bool is_listed = reader.has("layer_types");
  const int64_t period = is_listed ? 1 : reader.size("sliding_window_pattern", 4);
  const std::vector<bool> sliding =
      add_windows(reader, config, reader.size("sliding_window", 4096),
                  [&](int64_t layer) { return (layer + 1) % period != 0; });
  for (size_t i = 0; i < sliding.size(); ++i) {
    if (!sliding[i]) config.layers[i].rope = -1;
  }
  return config;
}

}  // namespace

/// EXAONE 4: norms after each branch, q and k normed per head; a window in layers that rotate, and
/// neither in every fourth, or all layers full.
extern const Family kExaone4{
    .architecture = "Exaone4ForCausalLM",
    .model_type = "exaone4",
    .config_class = "Exaone4Config",
    .layer_class = "Exaone4DecoderLayer",
    .classifier = "Exaone4ForSequenceClassification",
    .read_config = read_exaone4,
    .names = kPostNormNames,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
