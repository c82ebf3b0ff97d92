#include "models/decoder/family.h"
#include "models/families/exaone_kind.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_exaone4(ConfigReader& reader) {
  DecoderConfig config = read_exaone_kind(reader);
  config.norm_placement = NormPlacement::kPost;
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
