#pragma once

#include "models/decoder/config_reader.h"
#include "models/decoder/decoder_config.h"

namespace automodel::models::decoder {

/// Reads what EXAONE 4 and K-EXAONE have in common: q and k normed per head; a window in layers
/// that rotate, and neither in every fourth or those that `layer_types` calls full, or without a
/// window all layers full and rotated.
DecoderConfig read_exaone_kind(ConfigReader& reader);

}  // namespace automodel::models::decoder
