#include "models/decoder/family.h"
#include "models/families/granite_kind.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_granite_swa(ConfigReader& reader) {
  DecoderConfig config =
      read_granite_kind(reader, {.max_positions = 8192, .norm_eps = 1e-5, .is_head_tied = true});
  config.has_mlp_bias = reader.flag("mlp_bias", false);
  add_granite_windows(reader, config, 128);
  return config;
}

}  // namespace

/// Granite with attention sinks, a window in all but every fourth layer, and a theta a layer.
extern const Family kGraniteSwa{
    .architecture = "GraniteSWAForCausalLM",
    .model_type = "granite_swa",
    .config_class = "GraniteSWAConfig",
    .layer_class = "GraniteSWADecoderLayer",
    .read_config = read_granite_swa,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
