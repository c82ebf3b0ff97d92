#include "kernels/base/fused.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "core/divide.h"

namespace automodel::kernels {

namespace {

thread_local bool is_plain_asked = false;

}  // namespace

PlainPathScope::PlainPathScope(bool is_asked) : was_asked_(is_plain_asked) {
  is_plain_asked = is_asked;
}

PlainPathScope::~PlainPathScope() {
  is_plain_asked = was_asked_;
}

bool is_plain_path_asked() {
  return is_plain_asked;
}

bool is_fusable(std::initializer_list<at::Tensor> tensors) {
  if (is_plain_asked) return false;
  const auto all_are = [&](at::ScalarType dtype) {
    return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
      return !tensor.defined() || (tensor.device().is_cpu() && tensor.scalar_type() == dtype);
    });
  };
  return all_are(at::kFloat) || all_are(at::kBFloat16);
}

bool is_fusable_product(std::initializer_list<at::Tensor> tensors) {
  const auto* const first = std::find_if(tensors.begin(), tensors.end(),
                                         [](const at::Tensor& tensor) { return tensor.defined(); });
  if (first == tensors.end() || first->device().is_cpu()) return is_fusable(tensors);
  if (is_plain_asked) return false;
  return std::all_of(first, tensors.end(), [&](const at::Tensor& tensor) {
    return !tensor.defined() ||
           (tensor.device() == first->device() && tensor.scalar_type() == first->scalar_type());
  });
}

at::Tensor sum_over_blocks(int64_t rows, int64_t width,
                           const std::function<void(int64_t, int64_t, float*)>& body) {
  constexpr int64_t kBlockRows = 128;
  const int64_t num_blocks = ceil_div(rows, kBlockRows);
  const at::Tensor partials =
      at::zeros({std::max<int64_t>(num_blocks, 1), width}, at::TensorOptions().dtype(at::kFloat));
  float* data = partials.data_ptr<float>();
  at::parallel_for(0, num_blocks, 1, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      body(block * kBlockRows, std::min(rows, (block + 1) * kBlockRows), data + block * width);
    }
  });
  for (int64_t block = 1; block < num_blocks; ++block) {
    const float* other = data + block * width;
    for (int64_t i = 0; i < width; ++i) data[i] += other[i];
  }
  return partials.select(0, 0);
}

}  // namespace automodel::kernels
