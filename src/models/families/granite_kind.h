#pragma once

#include "models/decoder/config_reader.h"
#include "models/decoder/decoder_config.h"
#include "moe/moe_config.h"

namespace automodel::models::decoder {

/// The experts of Granite 3 and 4: the chosen ones' weights are a softmax over their scores.
moe::MoEConfig read_granite_experts(ConfigReader& reader, const DecoderConfig& config);

/// Granite's options but its MLPs': Llama's with four multipliers.
DecoderConfig read_granite_kind(ConfigReader& reader,
                                const CommonDefaults& defaults = {.requires_kv_heads = false});

/// Granite's sinks, which begin as zeros, a window in all but every fourth layer, and a theta a
/// layer in `layer_rope_theta`. `window` is that of a config.json without `sliding_window`.
void add_granite_windows(ConfigReader& reader, DecoderConfig& config, int64_t window);

}  // namespace automodel::models::decoder
