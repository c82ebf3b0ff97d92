#include "tensor/batch.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "tensor/memory.h"

namespace automodel::tensor {

int64_t SequencePart::num_tokens() const {
  int64_t sum = 0;
  for (const PositionRun& run : runs) sum += run.count;
  return sum;
}

std::vector<PositionRun> SequencePart::run_of_tokens(int64_t index, int64_t count) const {
  std::vector<PositionRun> found;
  int64_t skipped = index * count;
  int64_t missing = count;
  for (const PositionRun& run : runs) {
    const int64_t begin = std::min(skipped, run.count);
    const int64_t taken = std::min(run.count - begin, missing);
    if (taken > 0) found.push_back({run.first + begin, taken});
    skipped -= begin;
    missing -= taken;
  }
  if (missing > 0) found.push_back({length + skipped, missing});
  return found;
}

Batch Batch::to(at::Device device) const {
  const auto move = [&](const at::Tensor& tensor) {
    return tensor.defined() ? moved_to(tensor, device) : tensor;
  };
  Batch moved = {move(input_ids),    move(labels),       move(position_ids),
                 move(padding_mask), move(document_ids), part,
                 move(visible_keys), num_positions,      move(scored),
                 move(token_types),  move(source_ids),   move(source_padding)};
  if (position_ids.defined() && position_ids.is_cpu() && !device.is_cpu()) {
    moved.num_positions = needed_positions();
  }
  return moved;
}

Batch Batch::sequences(int64_t first, int64_t count) const {
  const auto rows = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.narrow(0, first, count) : tensor;
  };
  Batch out = {rows(input_ids),    rows(labels), rows(position_ids), rows(padding_mask),
               rows(document_ids), part,         rows(visible_keys)};
  out.token_types = rows(token_types);
  out.source_ids = rows(source_ids);
  out.source_padding = rows(source_padding);
  return out;
}

int64_t Batch::needed_positions() const {
  if (part) return part->num_positions;
  if (!position_ids.defined()) return sequence_length();
  return num_positions ? *num_positions : position_ids.max().item<int64_t>() + 1;
}

}  // namespace automodel::tensor
