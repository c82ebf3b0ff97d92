#pragma once

#include "models/decoder/config_reader.h"

namespace automodel::models::decoder {

/// Reads what GLM and GLM 4 have in common: biases on q, k and v, and neighbouring dims as pairs to
/// rotate.
DecoderConfig read_glm_kind(ConfigReader& reader);

}  // namespace automodel::models::decoder
