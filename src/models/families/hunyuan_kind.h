#pragma once

#include "models/decoder/config_reader.h"

namespace automodel::models::decoder {

/// Reads what HunYuan V1's dense models and those of experts have in common: Llama with q and k
/// normed per head behind their rotation, whose theta a release stretches by alpha.
DecoderConfig read_hunyuan_kind(ConfigReader& reader);

}  // namespace automodel::models::decoder
