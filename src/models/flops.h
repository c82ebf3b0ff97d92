#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "models/causal_lm.h"

namespace automodel::models {

/// Floating-point operations of forward and backward (three forwards) of `batch` sequences of
/// `sequence` tokens: upstream's formula for the model class, as used for MFU. Models without a
/// formula of their own upstream take that of a gated decoder with their head size.
double training_flops(std::string_view architecture, const ModelDims& dims, int64_t batch,
                      int64_t sequence);

/// Peak TFLOP/s (dense bf16) of a device by its name ("NVIDIA H100 80GB HBM3", "cpu"), from
/// upstream's table; nullopt when the table does not have it.
std::optional<double> peak_tflops(std::string_view device_name);

}  // namespace automodel::models
