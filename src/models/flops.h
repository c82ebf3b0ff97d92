#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "core/json.h"

namespace automodel::models {

/// Floating-point operations of forward and backward (three forwards) of `num_sequences` sequences
/// of `length` tokens.
using FlopCount = std::function<double(int64_t num_sequences, int64_t length)>;

/// Upstream's formula for the model class of a config.json, as used for MFU. Models for which
/// upstream has no formula use a gated decoder's with their head size. Null for those of an encoder
/// and a decoder, which see sources of other lengths. Throws UnsupportedError for
/// an unknown family.
FlopCount training_flops(const Json& hf_config);

/// Peak TFLOP/s (dense bf16) of a device by its name ("NVIDIA H100 80GB HBM3", "cpu"), from
/// upstream's table; nullopt for a device that is not in it.
std::optional<double> peak_tflops(std::string_view device_name);

}  // namespace automodel::models
