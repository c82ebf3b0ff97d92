#include "models/diffusion_gemma/canvas.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "core/error.h"

namespace automodel::models::diffusion_gemma {

CanvasVisibility canvas_visibility(const BlockDiffusionBatch& batch, int64_t window) {
  AM_CHECK(batch.block_size > 0, batch.block_size);
  const int64_t num_rows = batch.canvas_ids.size(0);
  const int64_t length = batch.canvas_ids.size(1);
  const auto runs = [&] {
    return at::zeros({num_rows, length, 2}, at::TensorOptions().dtype(at::kLong));
  };
  CanvasVisibility out{runs(), runs(), runs()};
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t prefix = batch.prefix_lengths[row].item<int64_t>();
    const int64_t response = batch.response_lengths[row].item<int64_t>();
    AM_CHECK(response <= length, "a response of ", response, " on a canvas of ", length);
    const auto put = [&](at::Tensor& tensor, int64_t token, int64_t begin, int64_t end) {
      int64_t* run = tensor.data_ptr<int64_t>() + (row * length + token) * 2;
      run[0] = begin;
      run[1] = end;
    };
    for (int64_t token = 0; token < response; ++token) {
      const int64_t block = token / batch.block_size * batch.block_size;
      const int64_t text_end = prefix + block;
      put(out.text, token, 0, text_end);
      put(out.sliding_text, token, std::max<int64_t>(0, text_end - window + 1), text_end);
      put(out.canvas, token, block, std::min(block + batch.block_size, response));
    }
    for (int64_t token = response; token < length; ++token)
      put(out.canvas, token, token, token + 1);
  }
  return out;
}

at::Tensor canvas_positions(const BlockDiffusionBatch& batch) {
  const at::Tensor offsets = at::arange(batch.canvas_ids.size(1), batch.prefix_lengths.options());
  return (batch.prefix_lengths.unsqueeze(1) + offsets).to(batch.canvas_ids.device()).contiguous();
}

at::Tensor canvas_padding(const BlockDiffusionBatch& batch) {
  const at::Tensor offsets = at::arange(batch.canvas_ids.size(1), batch.prefix_lengths.options());
  return offsets.ge(batch.response_lengths.unsqueeze(1)).to(batch.canvas_ids.device());
}

}  // namespace automodel::models::diffusion_gemma
