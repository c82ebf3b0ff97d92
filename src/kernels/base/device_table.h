#pragma once

#include <ATen/core/Tensor.h>

namespace automodel::kernels {

/// A table of constants of the CPU on a device: the table itself there, and elsewhere one copy for
/// the whole process, made by the first call, since a copy makes the host wait for the device.
/// `table` lives as long as the process. Nobody writes into the result.
at::Tensor table_on(const at::Tensor& table, at::Device device);

}  // namespace automodel::kernels
