#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/cpu/loops.h"

namespace automodel::kernels {

/// The 256 values that a byte of a block stands for, times the block's factor: an exponent of base
/// ten in unary and a fraction of the bits that are left (Dettmers 2015). Signed: from -0.993 to 1;
/// unsigned: from 0 to 1 with one more bit of fraction. Float32 on the CPU, ascending, with the
/// bits of bitsandbytes' create_dynamic_map. Nobody writes into it.
const at::Tensor& dynamic_codes(bool is_signed);

/// dynamic_codes() with the tables by which loops look values and codes up.
const cpu::EightBitMap& dynamic_map(bool is_signed);

}  // namespace automodel::kernels
