#include "tensor/key_map.h"

#include <ATen/core/Tensor.h>

namespace automodel::tensor {

at::Tensor part_of(const at::Tensor& parameter, const ParameterPart& part) {
  if (part.shape.empty()) return parameter.select(0, part.row_begin);  // a number
  std::vector<int64_t> rows = part.shape;
  rows[0] = -1;
  return parameter.view(rows).narrow(0, part.row_begin, part.shape[0]);
}

}  // namespace automodel::tensor
