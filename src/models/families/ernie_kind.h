#pragma once

#include "models/decoder/config_reader.h"

namespace automodel::models::decoder {

/// ERNIE 4.5's options without experts. `head_dim` 0: hidden_size / num_attention_heads.
DecoderConfig read_ernie_kind(ConfigReader& reader, int64_t head_dim);

}  // namespace automodel::models::decoder
