#include "kernels/two_part_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "kernels/attention_block.h"
#include "tensor/dtype.h"

namespace automodel::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// Queries stand behind all keys: what they see is said by visible_keys alone.
AttentionBlock block_of_part(int64_t num_keys, const at::Tensor& visible_keys, double scale) {
  AttentionBlock block;
  block.scale = scale;
  block.first_query = num_keys;
  block.visible_keys = visible_keys;
  return block;
}

struct TwoPartAttention : torch::autograd::Function<TwoPartAttention> {
  /// `parts`: k and v of the first, then of the second part.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q_in,
                            const at::Tensor& first_k, const at::Tensor& first_v,
                            const at::Tensor& second_k, const at::Tensor& second_v,
                            const at::Tensor& first_visible, const at::Tensor& second_visible,
                            double scale) {
    const at::Tensor q = q_in.contiguous();
    const Qkv first{q, first_k.contiguous(), first_v.contiguous()};
    const Qkv second{q, second_k.contiguous(), second_v.contiguous()};
    const auto options = q.options().dtype(tensor::wide_dtype(q.scalar_type()));
    AttentionResult result{at::empty({q.size(0), q.size(1), q.size(2), first.v.size(3)}, options),
                           at::empty({q.size(0), q.size(2), q.size(1)}, options)};
    attend_block(block_of_part(first.k.size(1), first_visible, scale), first, result);
    AttentionBlock rest = block_of_part(second.k.size(1), second_visible, scale);
    rest.adds = true;
    attend_block(rest, second, result);
    context->save_for_backward({q, first.k, first.v, second.k, second.v, result.out, result.lse,
                                first_visible, second_visible});
    context->saved_data["scale"] = scale;
    return result.out.to(q.scalar_type());
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const double scale = context->saved_data["scale"].toDouble();
    const AttentionResult result{saved[5], saved[6]};
    const auto wide = [&](const at::Tensor& x) {
      return at::zeros(x.sizes(), result.out.options());
    };
    const at::Tensor d_out = gradients[0].to(result.out.scalar_type()).contiguous();
    Qkv d_first{wide(saved[0]), wide(saved[1]), wide(saved[2])};
    attend_block_backward(block_of_part(saved[1].size(1), saved[7], scale),
                          {saved[0], saved[1], saved[2]}, result, d_out, d_first);
    Qkv d_second{d_first.q, wide(saved[3]), wide(saved[4])};
    attend_block_backward(block_of_part(saved[3].size(1), saved[8], scale),
                          {saved[0], saved[3], saved[4]}, result, d_out, d_second);
    const at::ScalarType dtype = saved[0].scalar_type();
    return {d_second.q.to(dtype), d_first.k.to(dtype), d_first.v.to(dtype), d_second.k.to(dtype),
            d_second.v.to(dtype), at::Tensor(),        at::Tensor(),        at::Tensor()};
  }
};

/// [B, 1, Q, T]: whether a query sees a key.
at::Tensor seen_keys(const AttentionPart& part) {
  const at::Tensor keys = at::arange(part.k.size(1), part.visible_keys.options());
  return keys.ge(part.visible_keys.narrow(-1, 0, 1))
      .logical_and(keys.lt(part.visible_keys.narrow(-1, 1, 1)))
      .unsqueeze(1);
}

}  // namespace

at::Tensor two_part_attention(const at::Tensor& q, const AttentionPart& first,
                              const AttentionPart& second, double scale) {
  return TwoPartAttention::apply(q, first.k, first.v, second.k, second.v, first.visible_keys,
                                 second.visible_keys, scale);
}

at::Tensor two_part_attention_reference(const at::Tensor& q, const AttentionPart& first,
                                        const AttentionPart& second, double scale) {
  const int64_t group = q.size(2) / first.k.size(2);
  const at::Tensor k = at::cat({first.k, second.k}, 1).transpose(1, 2).repeat_interleave(group, 1);
  const at::Tensor v = at::cat({first.v, second.v}, 1).transpose(1, 2).repeat_interleave(group, 1);
  const at::Tensor seen = at::cat({seen_keys(first), seen_keys(second)}, -1).to(q.device());
  const at::Tensor scores = at::matmul(q.transpose(1, 2), k.transpose(-1, -2)) * scale;
  const at::Tensor probabilities =
      scores.masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity())
          .softmax(-1)
          .masked_fill(seen.any(-1, true).logical_not(), 0.0);
  return at::matmul(probabilities, v).transpose(1, 2);
}

}  // namespace automodel::kernels
