#pragma once

#include <string_view>

#include "models/decoder/decoder_config.h"
#include "tensor/random.h"

namespace automodel::models::decoder {

/// How a parameter of the shared decoder is drawn, by upstream's rules.
tensor::InitRule initial_rule(const DecoderConfig& config, std::string_view parameter);

}  // namespace automodel::models::decoder
