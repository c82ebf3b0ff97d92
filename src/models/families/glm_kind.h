#pragma once

#include "models/decoder/config_reader.h"

namespace automodel::models::decoder {

/// What GLM and GLM 4 read alike: biases on q, k and v, and pairs of neighbouring dims rotated.
DecoderConfig read_glm_kind(ConfigReader& reader);

}  // namespace automodel::models::decoder
