#include "tensor/batch.h"

#include <ATen/core/Tensor.h>

#include "tensor/memory.h"

namespace automodel::tensor {

Batch Batch::to(at::Device device) const {
  const auto move = [&](const at::Tensor& tensor) {
    return tensor.defined() ? moved_to(tensor, device) : tensor;
  };
  return {move(input_ids),    move(labels), move(position_ids), move(padding_mask),
          move(document_ids), part,         move(visible_keys)};
}

Batch Batch::sequences(int64_t first, int64_t count) const {
  const auto rows = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.narrow(0, first, count) : tensor;
  };
  return {rows(input_ids),    rows(labels), rows(position_ids), rows(padding_mask),
          rows(document_ids), part,         rows(visible_keys)};
}

}  // namespace automodel::tensor
