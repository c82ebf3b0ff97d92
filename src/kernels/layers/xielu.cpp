#include "kernels/layers/xielu.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace automodel::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
using torch::autograd::Variable;

/// Elements of a tensor that are computed at once, so that temporaries stay small: on the CPU they
/// fit its caches.
int64_t piece_of(const at::Tensor& x) {
  return x.is_cpu() ? int64_t{1} << 16 : int64_t{1} << 24;
}

template <typename Body>
void in_small_pieces(const at::Tensor& flat, Body&& body) {
  const int64_t piece = piece_of(flat);
  for (int64_t first = 0; first < flat.numel(); first += piece) {
    body(first, std::min(piece, flat.numel() - first));
  }
}

/// The sum of a piece, whose blocks are added up each by one thread and then in their order.
at::Tensor ordered_sum(const at::Tensor& piece) {
  constexpr int64_t kBlock = 4096;
  const int64_t whole = piece.numel() / kBlock * kBlock;
  const at::Tensor rest = piece.narrow(0, whole, piece.numel() - whole).sum(at::kDouble);
  if (whole == 0) return rest;
  const at::Tensor blocks =
      piece.narrow(0, 0, whole).view({-1, kBlock}).sum({1}, false, at::kDouble);
  return blocks.sum() + rest;
}

struct Xielu : torch::autograd::Function<Xielu> {
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& positive,
                          const Variable& negative, const Variable& beta, const Variable& bound) {
    const at::Tensor flat = x.contiguous().view({-1});
    at::Tensor out = at::empty_like(flat);
    in_small_pieces(flat, [&](int64_t first, int64_t count) {
      const at::Tensor w = flat.narrow(0, first, count).to(positive.scalar_type());
      const at::Tensor below = (at::expm1(at::minimum(w, bound)) - w) * negative;
      out.narrow(0, first, count).copy_(at::where(w > 0, positive * w * w, below) + beta * w);
    });
    context->save_for_backward({x, positive, negative, beta, bound});
    return out.view(x.sizes());
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const tensor_list saved = context->get_saved_variables();
    const at::Tensor flat = saved[0].contiguous().view({-1});
    const at::Tensor& positive = saved[1];
    const at::Tensor& negative = saved[2];
    const at::Tensor& beta = saved[3];
    const at::Tensor& bound = saved[4];
    const at::Tensor d_out = gradients[0].contiguous().view({-1});
    at::Tensor d_x = at::empty_like(flat);
    const auto wide = positive.options();
    at::Tensor d_positive = at::zeros({}, wide.dtype(at::kDouble));
    at::Tensor d_negative = at::zeros_like(d_positive);
    in_small_pieces(flat, [&](int64_t first, int64_t count) {
      const at::Tensor w = flat.narrow(0, first, count).to(wide.dtype());
      const at::Tensor g = d_out.narrow(0, first, count).to(wide.dtype());
      const at::Tensor is_above = w > 0;
      const at::Tensor steep = at::where(w >= bound, 0.0, at::exp(w)) - 1;
      const at::Tensor slope = at::where(is_above, positive * w * 2, negative * steep) + beta;
      d_x.narrow(0, first, count).copy_(g * slope);
      const at::Tensor below = at::expm1(at::minimum(w, bound)) - w;
      d_positive += ordered_sum(at::where(is_above, g * w * w, 0.0));
      d_negative += ordered_sum(at::where(is_above, 0.0, g * below));
    });
    return {d_x.view(saved[0].sizes()),
            d_positive.to(wide.dtype()).view(positive.sizes()),
            d_negative.to(wide.dtype()).view(negative.sizes()),
            {},
            {}};
  }
};

}  // namespace

at::Tensor xielu(const at::Tensor& x, const XieluFactors& factors) {
  return Xielu::apply(x, factors.positive, factors.negative, factors.beta, factors.bound);
}

}  // namespace automodel::kernels
