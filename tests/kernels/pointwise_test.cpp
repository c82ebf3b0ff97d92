#include "kernels/base/pointwise.h"

#include <ATen/Parallel.h>

#include "kernels/differentiation.h"

namespace automodel::kernels {
namespace {

struct Named {
  const char* name;
  at::Tensor (*ours)(const at::Tensor&);
  at::Tensor (*atens)(const at::Tensor&);
};

const Named kFunctions[] = {
    {"silu", silu, [](const at::Tensor& x) { return at::silu(x); }},
    {"sigmoid", sigmoid, [](const at::Tensor& x) { return at::sigmoid(x); }},
    {"softplus", softplus, [](const at::Tensor& x) { return at::softplus(x); }},
};

/// The function's values, and the gradient of what has `gradient`.
std::vector<at::Tensor> values_and_gradient(at::Tensor (*function)(const at::Tensor&),
                                            const at::Tensor& at_x, const at::Tensor& gradient,
                                            int num_threads) {
  const int before = at::get_num_threads();
  at::set_num_threads(num_threads);
  const at::Tensor x = at_x.detach().clone().requires_grad_();
  const at::Tensor y = function(x);
  y.backward(gradient);
  at::set_num_threads(before);
  return {y.detach(), x.grad()};
}

/// Numbers of which no count of threads gets parts that vectors fill.
at::Tensor odd_numbers(at::ScalarType dtype) {
  return (Numbers(5).normal({3, 7, 9973}) * 4).to(dtype);
}

TEST(Pointwise, IsAtensOfOneThreadOnAnyNumberOfThreads) {
  for (const Named& function : kFunctions) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
      const at::Tensor x = odd_numbers(dtype);
      const at::Tensor gradient = x.flip(2);
      const auto wanted = values_and_gradient(function.atens, x, gradient, 1);
      for (const int num_threads : {1, 2, 3, 4}) {
        const auto found = values_and_gradient(function.ours, x, gradient, num_threads);
        EXPECT_TRUE(at::equal(found[0], wanted[0])) << function.name << ", " << num_threads;
        EXPECT_TRUE(at::equal(found[1], wanted[1])) << function.name << ", " << num_threads;
      }
    }
  }
}

TEST(Pointwise, TakesViewsAndNothing) {
  for (const Named& function : kFunctions) {
    const at::Tensor view = odd_numbers(at::kFloat).transpose(0, 2);
    EXPECT_TRUE(at::equal(function.ours(view), function.ours(view.contiguous()))) << function.name;
    EXPECT_EQ(function.ours(at::zeros({0, 3})).sizes(), at::zeros({0, 3}).sizes());
  }
}

}  // namespace
}  // namespace automodel::kernels
