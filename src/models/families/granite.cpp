#include "models/decoder/family.h"
#include "models/families/granite_kind.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_granite(ConfigReader& reader) {
  DecoderConfig config = read_granite_kind(reader);
  config.has_mlp_bias = reader.flag("mlp_bias", false);
  return config;
}

}  // namespace

/// Granite: Llama with four multipliers.
extern const Family kGranite{
    .architecture = "GraniteForCausalLM",
    .model_type = "granite",
    .config_class = "GraniteConfig",
    .layer_class = "GraniteDecoderLayer",
    .read_config = read_granite,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
