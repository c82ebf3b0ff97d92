#pragma once

#include "models/decoder/decoder_config.h"
#include "nn/activation_sizes.h"

namespace automodel::models::decoder {

/// What the shared decoder's modules keep and need for a batch whose positions are all labelled. It
/// must match what the kernels save; a test compares the two.
nn::ActivationSizes activation_sizes(const DecoderConfig& config, const nn::ActivationShape& shape);

}  // namespace automodel::models::decoder
