#pragma once

#include <vector>

#include "models/decoder/config_reader.h"
#include "models/decoder/decoder_config.h"

namespace automodel::models::decoder {

/// Reads the sizes of Bamba's Mamba-2 layers, which Granite 4 has too: mamba_n_heads and the keys
/// beside it. Their norm is over all numbers, whatever the groups.
Mamba2Options read_bamba_mamba(ConfigReader& reader, const DecoderConfig& config);

/// Puts Mamba-2 in the place of attention in all layers but those of `has_attention`.
void use_mamba_beside(DecoderConfig& config, const std::vector<bool>& has_attention);

}  // namespace automodel::models::decoder
