#include "kernels/loss/expected_embedding.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "kernels/products/product.h"

namespace automodel::kernels {

namespace {

constexpr int64_t kExpectedRows = 512;  // a chunk

/// Probabilities of some rows, in the dtype of the weight.
at::Tensor row_probabilities(const at::Tensor& rows, const at::Tensor& weight, double softcap) {
  const bool is_double = weight.scalar_type() == at::kDouble;
  at::Tensor logits = product(rows, weight.t()).to(is_double ? at::kDouble : at::kFloat);
  if (softcap > 0) logits = logits.div_(softcap).tanh_().mul_(softcap);
  return logits.softmax(-1).to(weight.scalar_type());
}

struct ExpectedEmbedding : torch::autograd::Function<ExpectedEmbedding> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& hidden,
                            const at::Tensor& weight, double softcap, double scale) {
    at::Tensor out = at::empty_like(hidden);
    for (int64_t begin = 0; begin < hidden.size(0); begin += kExpectedRows) {
      const int64_t count = std::min(kExpectedRows, hidden.size(0) - begin);
      const at::Tensor rows = hidden.narrow(0, begin, count);
      product_into(row_probabilities(rows, weight, softcap), weight, out.narrow(0, begin, count),
                   {.alpha = scale});
    }
    context->save_for_backward({hidden, weight});
    context->saved_data["softcap"] = softcap;
    context->saved_data["scale"] = scale;
    return out;
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& hidden = saved[0];
    const at::Tensor d_out = gradients[0] * context->saved_data["scale"].toDouble();
    at::Tensor d_weight = at::zeros_like(saved[1]);
    for (int64_t begin = 0; begin < hidden.size(0); begin += kExpectedRows) {
      const int64_t count = std::min(kExpectedRows, hidden.size(0) - begin);
      const at::Tensor probabilities = row_probabilities(hidden.narrow(0, begin, count), saved[1],
                                                         context->saved_data["softcap"].toDouble());
      product_into(probabilities.t(), d_out.narrow(0, begin, count), d_weight, {.adds = true});
    }
    return {at::Tensor(), d_weight, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor expected_embedding(const at::Tensor& hidden, const at::Tensor& weight,
                              const ExpectedEmbeddingOptions& options) {
  return ExpectedEmbedding::apply(hidden.detach(), weight, options.softcap, options.scale);
}

}  // namespace automodel::kernels
