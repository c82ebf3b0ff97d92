#include "kernels/attention/two_part_attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <limits>
#include <optional>

#include "kernels/attention/attention_block.h"
#include "tensor/dtype.h"

namespace automodel::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// Queries stand behind all keys: what they see is said by visible_keys and chosen_keys alone.
AttentionBlock block_of(const AttentionPart& part, double scale) {
  AttentionBlock block;
  block.scale = scale;
  block.first_query = part.k.size(1);
  block.visible_keys = part.visible_keys;
  block.chosen_keys = part.chosen_keys;
  return block;
}

using MaybeTensor = std::optional<at::Tensor>;

struct TwoPartAttention : torch::autograd::Function<TwoPartAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q_in,
                            const at::Tensor& first_k, const at::Tensor& first_v,
                            const at::Tensor& second_k, const at::Tensor& second_v,
                            const MaybeTensor& sinks, const AttentionPart* first,
                            const AttentionPart* second, double scale) {
    const at::Tensor q = q_in.contiguous();
    const std::array<Qkv, 2> parts = {Qkv{q, first_k.contiguous(), first_v.contiguous()},
                                      Qkv{q, second_k.contiguous(), second_v.contiguous()}};
    const auto options = q.options().dtype(tensor::wide_dtype(q.scalar_type()));
    AttentionResult result{at::empty({q.size(0), q.size(1), q.size(2), first_v.size(3)}, options),
                           at::empty({q.size(0), q.size(2), q.size(1)}, options)};
    attend_block(block_of(*first, scale), parts[0], result);
    AttentionBlock rest = block_of(*second, scale);
    rest.adds = true;
    if (second_k.size(1) > 0) attend_block(rest, parts[1], result);
    if (sinks) add_sinks(*sinks, result);
    context->save_for_backward({q, parts[0].k, parts[0].v, parts[1].k, parts[1].v, result.out,
                                result.lse, first->visible_keys, second->visible_keys,
                                first->chosen_keys, second->chosen_keys,
                                sinks.value_or(at::Tensor())});
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
    const AttentionPart first{saved[1], saved[2], saved[7], saved[9]};
    const AttentionPart second{saved[3], saved[4], saved[8], saved[10]};
    Qkv d_first{wide(saved[0]), wide(first.k), wide(first.v)};
    attend_block_backward(block_of(first, scale), {saved[0], first.k, first.v}, result, d_out,
                          d_first);
    Qkv d_second{d_first.q, wide(second.k), wide(second.v)};
    if (second.k.size(1) > 0) {
      attend_block_backward(block_of(second, scale), {saved[0], second.k, second.v}, result, d_out,
                            d_second);
    }
    at::Tensor d_sinks;
    if (saved[11].defined()) d_sinks = sinks_gradient(saved[11], result, d_out);
    const at::ScalarType dtype = saved[0].scalar_type();
    return {d_second.q.to(dtype), d_first.k.to(dtype),  d_first.v.to(dtype),
            d_second.k.to(dtype), d_second.v.to(dtype), d_sinks,
            at::Tensor(),         at::Tensor(),         at::Tensor()};
  }
};

/// [B, 1, Q, T]: whether a query sees a key.
at::Tensor seen_keys(const AttentionPart& part) {
  const int64_t num_keys = part.k.size(1);
  const at::Tensor keys = at::arange(num_keys, part.visible_keys.options());
  at::Tensor seen = keys.ge(part.visible_keys.narrow(-1, 0, 1))
                        .logical_and(keys.lt(part.visible_keys.narrow(-1, 1, 1)));
  if (part.chosen_keys.defined()) {
    const at::Tensor is_chosen = at::zeros(seen.sizes(), seen.options())
                                     .scatter_(-1, part.chosen_keys.to(at::kLong).cpu(), true);
    seen = seen.logical_and(is_chosen);
  }
  return seen.unsqueeze(1);
}

}  // namespace

at::Tensor two_part_attention(const at::Tensor& q, const AttentionPart& first,
                              const AttentionPart& second, const TwoPartOptions& options) {
  const MaybeTensor sinks =
      options.sinks.defined() ? MaybeTensor(options.sinks) : MaybeTensor(std::nullopt);
  return TwoPartAttention::apply(q, first.k, first.v, second.k, second.v, sinks, &first, &second,
                                 options.scale);
}

at::Tensor two_part_attention_reference(const at::Tensor& q, const AttentionPart& first,
                                        const AttentionPart& second,
                                        const TwoPartOptions& options) {
  const int64_t group = q.size(2) / first.k.size(2);
  const at::Tensor k = at::cat({first.k, second.k}, 1).transpose(1, 2).repeat_interleave(group, 1);
  const at::Tensor v = at::cat({first.v, second.v}, 1).transpose(1, 2).repeat_interleave(group, 1);
  const at::Tensor seen = at::cat({seen_keys(first), seen_keys(second)}, -1).to(q.device());
  at::Tensor scores = at::matmul(q.transpose(1, 2), k.transpose(-1, -2)) * options.scale;
  scores = scores.masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity());
  const int64_t num_keys = scores.size(-1);
  if (options.sinks.defined()) {
    const at::Tensor sinks = options.sinks.to(scores.scalar_type()).view({1, -1, 1, 1});
    scores = at::cat({scores, sinks.expand({scores.size(0), -1, scores.size(2), 1})}, -1);
  }
  const at::Tensor probabilities =
      scores.softmax(-1).narrow(-1, 0, num_keys).masked_fill(seen.any(-1, true).logical_not(), 0.0);
  return at::matmul(probabilities, v).transpose(1, 2);
}

}  // namespace automodel::kernels
