#pragma once

#include "models/decoder/config_reader.h"

namespace automodel::models::decoder {

/// `clip_qkv`: the bound of |q|, |k| and |v|; 0 where it is absent.
double read_clip_qkv(ConfigReader& reader);

}  // namespace automodel::models::decoder
