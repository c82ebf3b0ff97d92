#include "kernels/base/pointwise.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>

#include "core/divide.h"
#include "core/error.h"

namespace automodel::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

enum class Kind { kSilu, kSigmoid, kSoftplus };

constexpr double kBeta = 1;
constexpr double kThreshold = 20;

void compute(Kind kind, const at::Tensor& x, at::Tensor out) {
  switch (kind) {
    case Kind::kSilu:
      at::silu_out(out, x);
      return;
    case Kind::kSigmoid:
      at::sigmoid_out(out, x);
      return;
    case Kind::kSoftplus:
      at::softplus_out(out, x, kBeta, kThreshold);
      return;
  }
  AM_CHECK(false);
}

/// `x` is the function's input, of sigmoid its result.
void compute_backward(Kind kind, const at::Tensor& gradient, const at::Tensor& x, at::Tensor out) {
  switch (kind) {
    case Kind::kSilu:
      at::silu_backward_out(out, gradient, x);
      return;
    case Kind::kSigmoid:
      at::sigmoid_backward_out(out, gradient, x);
      return;
    case Kind::kSoftplus:
      at::softplus_backward_out(out, gradient, x, kBeta, kThreshold);
      return;
  }
  AM_CHECK(false);
}

/// Calls `body` with the same range of all tensors, which are contiguous: in pieces that vectors
/// fill, of which only the last may leave some over.
template <typename Body, size_t N>
void in_pieces(const std::array<at::Tensor, N>& tensors, const Body& body) {
  constexpr int64_t kPiece = 32768;
  const int64_t numel = tensors[0].numel();
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  if (!tensors[0].is_cpu() || numel <= kPiece) return body(tensors);
  std::array<at::Tensor, N> flat;
  std::ranges::transform(tensors, flat.begin(), [](const auto& each) { return each.view({-1}); });
  at::parallel_for(0, ceil_div(numel, kPiece), 1, [&](int64_t begin, int64_t end) {
    const at::AutoDispatchBelowADInplaceOrView no_autograd_here;
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t first = piece * kPiece;
      const int64_t count = std::min(kPiece, numel - first);
      std::array<at::Tensor, N> part;
      std::ranges::transform(flat, part.begin(),
                             [&](const auto& each) { return each.narrow(0, first, count); });
      body(part);
    }
  });
}

at::Tensor apply_forward(Kind kind, const at::Tensor& input) {
  const at::Tensor x = input.contiguous();
  const at::Tensor out = at::empty_like(x);
  in_pieces(std::array{x, out}, [&](const auto& part) { compute(kind, part[0], part[1]); });
  return out;
}

at::Tensor apply_backward(Kind kind, const at::Tensor& gradient, const at::Tensor& input) {
  const at::Tensor x = input.contiguous();
  const at::Tensor out = at::empty_like(x);
  in_pieces(std::array{gradient.contiguous(), x, out},
            [&](const auto& part) { compute_backward(kind, part[0], part[1], part[2]); });
  return out;
}

struct Pointwise : torch::autograd::Function<Pointwise> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, int64_t which) {
    const auto kind = static_cast<Kind>(which);
    at::Tensor out = apply_forward(kind, x);
    context->save_for_backward({kind == Kind::kSigmoid ? out : x});
    context->saved_data["kind"] = which;
    return out;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto kind = static_cast<Kind>(context->saved_data["kind"].toInt());
    return {apply_backward(kind, gradients[0], context->get_saved_variables()[0]), at::Tensor()};
  }
};

at::Tensor apply(Kind kind, const at::Tensor& x) {
  return Pointwise::apply(x, static_cast<int64_t>(kind));
}

}  // namespace

at::Tensor silu(const at::Tensor& x) {
  return apply(Kind::kSilu, x);
}

at::Tensor sigmoid(const at::Tensor& x) {
  return apply(Kind::kSigmoid, x);
}

at::Tensor softplus(const at::Tensor& x) {
  return apply(Kind::kSoftplus, x);
}

at::Tensor silu_backward(const at::Tensor& gradient, const at::Tensor& x) {
  return apply_backward(Kind::kSilu, gradient, x);
}

}  // namespace automodel::kernels
