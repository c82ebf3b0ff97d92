#include "nn/product_dtype.h"

#include <ATen/ATen.h>

#include <memory>

namespace automodel::nn {

at::Tensor ProductDtype::of(const at::Tensor& operand) const {
  const bool is_cast = dtype_ && operand.defined() && operand.is_floating_point() &&
                       operand.scalar_type() != at::kDouble;
  return is_cast ? operand.to(*dtype_) : operand;
}

void set_product_dtype(torch::nn::Module& module, at::ScalarType dtype) {
  if (auto* own = dynamic_cast<MultiplyingModule*>(&module)) own->product_dtype().set(dtype);
  for (const std::shared_ptr<torch::nn::Module>& below : module.children()) {
    set_product_dtype(*below, dtype);
  }
}

}  // namespace automodel::nn
