#include "models/decoder/family.h"
#include "models/families/cohere_kind.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_cohere(ConfigReader& reader) {
  DecoderConfig config = read_cohere_kind(reader, 500000.0);
  if (reader.flag("use_qk_norm", false)) config.qk_norm = QkNorm::kLayerOfHeads;
  return config;
}

}  // namespace

/// Command R: one LayerNorm before attention and MLP, which are side by side; neighbouring dims
/// rotated, logits scaled.
extern const Family kCohere{
    .architecture = "CohereForCausalLM",
    .model_type = "cohere",
    .config_class = "CohereConfig",
    .layer_class = "CohereDecoderLayer",
    .read_config = read_cohere,
    .names = kCohereNames,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
