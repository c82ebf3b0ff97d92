#include "kernels/linear_recurrence.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "core/error.h"
#include "tensor/dtype.h"

// Shapes of chunked tensors: n chunks first, then B sequences, heads, C tokens of a chunk, dims.
// K key heads (G groups) serve r value heads each, N = K r.

namespace automodel::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
using Tensors = std::vector<at::Tensor>;
using Body = at::Tensor (*)(const Tensors& inputs);  // the last one may be undefined

/// A body of plain operations whose results between are not kept: backward computes them again.
template <Body body>
struct ComputedAgain : torch::autograd::Function<ComputedAgain<body>> {
  static at::Tensor forward(AutogradContext* context, at::TensorList inputs,
                            const std::optional<at::Tensor>& runs) {
    Tensors all(inputs.begin(), inputs.end());
    all.push_back(runs.value_or(at::Tensor()));
    context->save_for_backward(all);
    return body(all);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    Tensors all = context->get_saved_variables();
    Tensors leaves;
    for (size_t i = 0; i + 1 < all.size(); ++i) {
      all[i] = all[i].detach().requires_grad_();
      leaves.push_back(all[i]);
    }
    const at::AutoGradMode with_gradients(true);
    Tensors found = torch::autograd::grad({body(all)}, leaves, {gradients[0]});
    found.emplace_back();  // of the runs
    return found;
  }
};

template <Body body>
at::Tensor computed_again(const Tensors& inputs, const at::Tensor& runs) {
  return ComputedAgain<body>::apply(at::TensorList(inputs),
                                    runs.defined() ? std::optional(runs) : std::nullopt);
}

/// x [B, S, heads, ...] to [n, B, heads, C, ...]; `filler` stands behind the end.
at::Tensor chunked(const at::Tensor& x, double filler = 0) {
  const int64_t length = x.size(1);
  const int64_t size = std::min(kRecurrenceChunk, length);
  const int64_t missing = (size - length % size) % size;
  std::vector<int64_t> padding(static_cast<size_t>(2 * (x.dim() - 1)), 0);
  padding.back() = missing;
  const at::Tensor whole = missing == 0 ? x : at::constant_pad_nd(x, padding, filler);
  return whole.unflatten(1, {-1, size}).transpose(0, 1).transpose(2, 3).contiguous();
}

/// [n, B, heads, C, ...] to the `length` tokens [B, S, heads, ...].
at::Tensor unchunked(const at::Tensor& x, int64_t length) {
  return x.transpose(2, 3).transpose(0, 1).flatten(1, 2).narrow(1, 0, length);
}

/// What becomes of a state inside and across chunks.
struct ChunkDecay {
  at::Tensor pairs;   ///< [n, B, N, C, C]: from token j to token i >= j of one run; else 0
  at::Tensor reads;   ///< [n, B, N, C]: from the chunk's beginning to token i
  at::Tensor writes;  ///< [n, B, N, C]: from token j to the chunk's end
  at::Tensor whole;   ///< [n, B, N]: through the chunk
};

/// decay [n, B, N, C]: logarithms; runs [n, B, 1, C] or undefined.
ChunkDecay chunk_decay(const at::Tensor& decay, const at::Tensor& runs) {
  // Differences of long sums: in float32 what a run keeps would depend on the runs before it.
  const at::ScalarType dtype = decay.scalar_type();
  const at::Tensor sums = decay.to(at::kDouble).cumsum(-1);
  const at::Tensor last = sums.narrow(-1, -1, 1);
  at::Tensor is_hidden =
      at::ones({decay.size(-1), decay.size(-1)}, decay.options().dtype(at::kBool)).triu(1);
  if (runs.defined()) is_hidden = is_hidden.logical_or(runs.unsqueeze(-1).ne(runs.unsqueeze(-2)));
  ChunkDecay out;
  out.pairs = (sums.unsqueeze(-1) - sums.unsqueeze(-2))
                  .to(dtype)
                  .masked_fill(is_hidden, -std::numeric_limits<double>::infinity())
                  .exp();
  out.reads = sums.to(dtype).exp();
  out.writes = (last - sums).to(dtype).exp();
  out.whole = last.to(dtype).exp().squeeze(-1);
  if (!runs.defined()) return out;
  const at::Tensor end = runs.narrow(-1, -1, 1);
  const at::Tensor begin =
      at::cat({runs.narrow(0, 0, 1).narrow(-1, 0, 1), end.narrow(0, 0, end.size(0) - 1)});
  out.reads = out.reads * runs.eq(begin);
  out.writes = out.writes * runs.eq(end);
  out.whole = out.whole * begin.eq(end).squeeze(-1);
  return out;
}

at::Tensor chunked_runs(const at::Tensor& runs) {
  return runs.defined() ? chunked(runs.unsqueeze(2), -1) : runs;
}

at::Tensor with_length_one(const at::Tensor& x) {
  return x * (x.square().sum(-1, true) + 1e-6).rsqrt();
}

/// x [n, B, K, C, ...] of key heads for each of the r value heads: [n, B, K, r, C, ...].
at::Tensor of_values(const at::Tensor& x, int64_t r) {
  std::vector<int64_t> sizes(x.sizes().begin(), x.sizes().end());
  sizes.insert(sizes.begin() + 3, r);
  return x.unsqueeze(3).expand(sizes);
}

/// q, k, v, decay, beta, runs.
at::Tensor delta_rule(const Tensors& inputs) {
  const at::ScalarType dtype = tensor::wide_dtype(inputs[2].scalar_type());
  const auto wide = [&](size_t i) { return inputs[i].to(dtype); };
  const int64_t key_dim = inputs[0].size(3), value_dim = inputs[2].size(3);
  const int64_t r = inputs[2].size(2) / inputs[1].size(2);
  const at::Tensor q = chunked(with_length_one(wide(0)) / std::sqrt(static_cast<double>(key_dim)));
  const at::Tensor k = chunked(with_length_one(wide(1)));
  const at::Tensor v = chunked(wide(2));
  const at::Tensor beta = chunked(wide(4)).unsqueeze(-1);
  const ChunkDecay decay = chunk_decay(chunked(wide(3)), chunked_runs(inputs[5]));
  const auto scores = [&](const at::Tensor& rows) {
    const at::Tensor products = rows.matmul(k.transpose(-1, -2));
    return of_values(products, r).flatten(2, 3) * decay.pairs;
  };
  const at::Tensor keys = of_values(k, r).flatten(2, 3);  // [n, B, N, C, D]
  // What a chunk writes depends on what its earlier tokens have written: a triangular system for
  // the written values, and for what of them the state before the chunk takes away.
  const at::Tensor known = at::cat({v, keys * decay.reads.unsqueeze(-1)}, -1) * beta;
  const at::Tensor solved =
      at::linalg_solve_triangular(scores(k) * beta, known, /*upper=*/false, /*left=*/true,
                                  /*unitriangular=*/true);
  const Tensors values = solved.narrow(-1, 0, value_dim).unbind(0);
  const Tensors taken = solved.narrow(-1, value_dim, key_dim).unbind(0);
  const Tensors writers = (keys * decay.writes.unsqueeze(-1)).transpose(-1, -2).unbind(0);
  const Tensors kept = decay.whole.unsqueeze(-1).unsqueeze(-1).unbind(0);
  Tensors states{at::zeros({v.size(1), v.size(2), key_dim, value_dim}, v.options())};
  Tensors written;
  for (size_t i = 0; i < values.size(); ++i) {
    written.push_back(values[i] - taken[i].matmul(states[i]));
    if (i + 1 == values.size()) break;
    states.push_back(states[i] * kept[i] + writers[i].matmul(written[i]));
  }
  const at::Tensor readers = of_values(q, r).flatten(2, 3) * decay.reads.unsqueeze(-1);
  const at::Tensor out = readers.matmul(at::stack(states)) + scores(q).matmul(at::stack(written));
  return unchunked(out, inputs[2].size(1)).to(inputs[2].scalar_type());
}

/// x, step, decay, b, c, runs.
at::Tensor state_space(const Tensors& inputs) {
  const at::ScalarType dtype = tensor::wide_dtype(inputs[0].scalar_type());
  const auto wide = [&](size_t i) { return inputs[i].to(dtype); };
  const int64_t num_groups = inputs[3].size(2);
  const int64_t r = inputs[0].size(2) / num_groups;
  // Heads of a group lie behind its tokens: [n, B, G, C, r, P].
  const at::Tensor x = chunked((wide(0) * wide(1).unsqueeze(-1)).unflatten(2, {num_groups, r}));
  const at::Tensor b = chunked(wide(3));
  const at::Tensor c = chunked(wide(4));
  const ChunkDecay decay = chunk_decay(chunked(wide(2)), chunked_runs(inputs[5]));
  const auto per_head = [&](const at::Tensor& factor) {  // [n, B, N, C] to [n, B, G, C, r, 1]
    return factor.unflatten(2, {num_groups, r}).transpose(-1, -2).unsqueeze(-1);
  };
  const at::Tensor scores =
      of_values(c.matmul(b.transpose(-1, -2)), r) * decay.pairs.unflatten(2, {num_groups, r});
  const at::Tensor within = scores.matmul(x.transpose(3, 4)).transpose(3, 4);
  const at::Tensor inputs_written = (x * per_head(decay.writes)).flatten(-2);
  const Tensors written =
      b.transpose(-1, -2).matmul(inputs_written).unflatten(-1, x.sizes().slice(4)).unbind(0);
  const Tensors kept =
      decay.whole.unflatten(2, {num_groups, 1, r}).unsqueeze(-1).unbind(0);  // [B, G, 1, r, 1]
  Tensors states{at::zeros_like(written[0])};                                // [B, G, D, r, P]
  for (size_t i = 0; i + 1 < written.size(); ++i) {
    states.push_back(states[i] * kept[i] + written[i]);
  }
  const at::Tensor carried =
      c.matmul(at::stack(states).flatten(-2)).view(x.sizes()) * per_head(decay.reads);
  // [n, B, G, C, r, P] to [B, S, N, P]
  const at::Tensor out = unchunked(within + carried, inputs[0].size(1)).flatten(2, 3);
  return out.to(inputs[0].scalar_type());
}

}  // namespace

at::Tensor document_runs(const at::Tensor& document_ids) {
  if (!document_ids.defined()) return {};
  const int64_t count = document_ids.size(1) - 1;
  const at::Tensor changes = document_ids.narrow(1, 1, count).ne(document_ids.narrow(1, 0, count));
  return at::constant_pad_nd(changes.to(at::kLong), {1, 0}).cumsum(1);
}

at::Tensor gated_delta_rule(const GatedDeltaInputs& in) {
  AM_CHECK(in.v.size(2) % in.k.size(2) == 0, in.v.size(2), " heads of ", in.k.size(2));
  return computed_again<delta_rule>({in.q, in.k, in.v, in.decay, in.beta}, in.runs);
}

at::Tensor state_space_scan(const StateSpaceInputs& in) {
  AM_CHECK(in.x.size(2) % in.b.size(2) == 0, in.x.size(2), " heads of ", in.b.size(2));
  return computed_again<state_space>({in.x, in.step, in.decay, in.b, in.c}, in.runs);
}

}  // namespace automodel::kernels
