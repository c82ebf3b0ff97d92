#include "models/block_denoiser.h"

#include "tensor/memory.h"

namespace automodel::models {

BlockDiffusionBatch BlockDiffusionBatch::to(at::Device device) const {
  BlockDiffusionBatch moved = *this;
  for (at::Tensor* tensor : {&moved.input_ids, &moved.padding_mask, &moved.text_labels,
                             &moved.canvas_ids, &moved.canvas_labels, &moved.is_conditioned}) {
    if (tensor->defined()) *tensor = tensor::moved_to(*tensor, device);
  }
  return moved;
}

}  // namespace automodel::models
