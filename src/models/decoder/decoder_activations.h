#pragma once

#include "models/decoder/decoder_config.h"
#include "nn/activation_sizes.h"

namespace automodel::models::decoder {

/// What the shared decoder's modules keep and need for a batch, all positions labelled. It follows
/// what the kernels save: a change of one is a change of this, and a test counts both.
nn::ActivationSizes activation_sizes(const DecoderConfig& config, const nn::ActivationShape& shape);

}  // namespace automodel::models::decoder
