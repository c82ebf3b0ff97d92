#pragma once

#include "models/decoder/config_reader.h"

namespace automodel::models::decoder {

/// Granite's options but its MLPs': Llama's with four multipliers.
DecoderConfig read_granite_kind(ConfigReader& reader);

}  // namespace automodel::models::decoder
