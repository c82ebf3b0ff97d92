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

/// Upstream's formula for the model class of a config.json, as used for MFU. Models without a
/// formula of their own upstream take that of a gated decoder with their head size. Throws
/// UnsupportedError for an unknown family.
FlopCount training_flops(const Json& hf_config);

/// Peak TFLOP/s (dense bf16) of a device by its name ("NVIDIA H100 80GB HBM3", "cpu"), from
/// upstream's table; nullopt when the table does not have it.
std::optional<double> peak_tflops(std::string_view device_name);

}  // namespace automodel::models
