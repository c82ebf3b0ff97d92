#include "kernels/recurrence/linear_recurrence.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <bit>
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

/// x [B, S, heads, ...] to [n, B, heads, C, ...] of `size` tokens; `filler` stands behind the end.
at::Tensor chunked(const at::Tensor& x, int64_t size, double filler = 0) {
  const int64_t missing = (size - x.size(1) % size) % size;
  std::vector<int64_t> padding(static_cast<size_t>(2 * (x.dim() - 1)), 0);
  padding.back() = missing;
  const at::Tensor whole = missing == 0 ? x : at::constant_pad_nd(x, padding, filler);
  return whole.unflatten(1, {-1, size}).transpose(0, 1).transpose(2, 3).contiguous();
}

/// Tokens of a chunk of sequences of `length` tokens.
int64_t chunk_size(int64_t length) {
  return std::min(kRecurrenceChunk, length);
}

/// [n, B, heads, C, ...] to the `length` tokens [B, S, heads, ...].
at::Tensor unchunked(const at::Tensor& x, int64_t length) {
  return x.transpose(2, 3).transpose(0, 1).flatten(1, 2).narrow(1, 0, length);
}

/// What becomes of a state across chunks. D' is 1 where a whole state has one decay, else D.
struct ChunkDecay {
  at::Tensor sums;    ///< [n, B, N, C, D'] float64: logarithms, from the chunk's beginning on
  at::Tensor reads;   ///< [n, B, N, C, D']: from the chunk's beginning to token i
  at::Tensor writes;  ///< [n, B, N, C, D']: from token j to the chunk's end
  at::Tensor whole;   ///< [n, B, N, D']: through the chunk
};

/// decay [n, B, N, C, D']: logarithms; runs [n, B, 1, C] or undefined.
ChunkDecay chunk_decay(const at::Tensor& decay, const at::Tensor& runs) {
  // Differences of long sums: in float32 what a run keeps would depend on the runs before it.
  const at::ScalarType dtype = decay.scalar_type();
  ChunkDecay out;
  out.sums = decay.to(at::kDouble).cumsum(-2);
  const at::Tensor last = out.sums.narrow(-2, -1, 1);
  out.reads = out.sums.to(dtype).exp();
  out.writes = (last - out.sums).to(dtype).exp();
  out.whole = last.to(dtype).exp().squeeze(-2);
  if (!runs.defined()) return out;
  const at::Tensor end = runs.narrow(-1, -1, 1);
  const at::Tensor begin =
      at::cat({runs.narrow(0, 0, 1).narrow(-1, 0, 1), end.narrow(0, 0, end.size(0) - 1)});
  out.reads = out.reads * runs.eq(begin).unsqueeze(-1);
  out.writes = out.writes * runs.eq(end).unsqueeze(-1);
  out.whole = out.whole * begin.eq(end);
  return out;
}

/// [n, B, N, C, C]: from token j to token i >= j of one run; else 0. Of `sums` with one decay.
at::Tensor pair_decay(const at::Tensor& sums, const at::Tensor& runs, at::ScalarType dtype) {
  const at::Tensor flat = sums.squeeze(-1);
  const int64_t size = flat.size(-1);
  at::Tensor is_hidden = at::ones({size, size}, flat.options().dtype(at::kBool)).triu(1);
  if (runs.defined()) is_hidden = is_hidden.logical_or(runs.unsqueeze(-1).ne(runs.unsqueeze(-2)));
  return (flat.unsqueeze(-1) - flat.unsqueeze(-2))
      .to(dtype)
      .masked_fill(is_hidden, -std::numeric_limits<double>::infinity())
      .exp();
}

/// [..., s, s]: products of the rows of token i and the keys of token j <= i, of which dim d
/// decays by exp(sums_id - sums_jd); rows, keys and sums [..., s, D], s a power of two. Tokens of
/// the second half see those of the first through the token between them, so that no exponent is
/// above 0; each half is of the same kind.
at::Tensor decayed_products(const at::Tensor& rows, const at::Tensor& keys,
                            const at::Tensor& sums) {
  const int64_t size = rows.size(-2);
  if (size == 1) return (rows * keys).sum(-1, true);
  const int64_t half = size / 2;
  const auto halves = [&](const at::Tensor& x) { return x.unflatten(-2, {2, half}); };
  const auto part = [&](const at::Tensor& x, int64_t which) {
    return x.narrow(-2, which * half, half);
  };
  const at::Tensor within = decayed_products(halves(rows), halves(keys), halves(sums));
  const at::Tensor between = sums.narrow(-2, half, 1);
  const auto factor = [&](const at::Tensor& exponents) {
    return exponents.to(rows.scalar_type()).exp();
  };
  const at::Tensor late = part(rows, 1) * factor(part(sums, 1) - between);
  const at::Tensor early = part(keys, 0) * factor(between - part(sums, 0));
  const at::Tensor first = within.select(-3, 0);
  const at::Tensor above = at::cat({first, at::zeros_like(first)}, -1);
  return at::cat({above, at::cat({late.matmul(early.transpose(-1, -2)), within.select(-3, 1)}, -1)},
                 -2);
}

at::Tensor chunked_runs(const at::Tensor& runs, int64_t size) {
  return runs.defined() ? chunked(runs.unsqueeze(2), size, -1) : runs;
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
  const int64_t key_dim = inputs[0].size(3), value_dim = inputs[2].size(3);
  const int64_t r = inputs[2].size(2) / inputs[1].size(2);
  const bool has_row_decays = inputs[3].dim() == 4;
  int64_t size = chunk_size(inputs[2].size(1));
  if (has_row_decays) size = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size)));
  const auto wide = [&](size_t i) { return inputs[i].to(dtype); };
  const auto in_chunks = [&](const at::Tensor& x) { return chunked(x, size); };
  const at::Tensor q =
      in_chunks(with_length_one(wide(0)) / std::sqrt(static_cast<double>(key_dim)));
  const at::Tensor k = in_chunks(with_length_one(wide(1)));
  const at::Tensor v = in_chunks(wide(2));
  const at::Tensor beta = in_chunks(wide(4)).unsqueeze(-1);
  const at::Tensor runs = chunked_runs(inputs[5], size);
  const ChunkDecay decay =
      chunk_decay(in_chunks(has_row_decays ? wide(3) : wide(3).unsqueeze(-1)), runs);
  const at::Tensor keys = of_values(k, r).flatten(2, 3);  // [n, B, N, C, D]
  const at::Tensor pairs = has_row_decays ? at::Tensor() : pair_decay(decay.sums, runs, dtype);
  const auto scores = [&](const at::Tensor& rows) {
    if (!has_row_decays) {
      return of_values(rows.matmul(k.transpose(-1, -2)), r).flatten(2, 3) * pairs;
    }
    const at::Tensor out = decayed_products(of_values(rows, r).flatten(2, 3), keys, decay.sums);
    return runs.defined() ? out * runs.unsqueeze(-1).eq(runs.unsqueeze(-2)) : out;
  };
  // What a chunk writes depends on what its earlier tokens have written: a triangular system for
  // the written values, and for what of them the state before the chunk takes away.
  const at::Tensor known = at::cat({v, keys * decay.reads}, -1) * beta;
  const at::Tensor solved =
      at::linalg_solve_triangular(scores(k) * beta, known, /*upper=*/false, /*left=*/true,
                                  /*unitriangular=*/true);
  const Tensors values = solved.narrow(-1, 0, value_dim).unbind(0);
  const Tensors taken = solved.narrow(-1, value_dim, key_dim).unbind(0);
  const Tensors writers = (keys * decay.writes).transpose(-1, -2).unbind(0);
  const Tensors kept = decay.whole.unsqueeze(-1).unbind(0);  // [B, N, D', 1]
  Tensors states{at::zeros({v.size(1), v.size(2), key_dim, value_dim}, v.options())};
  Tensors written;
  for (size_t i = 0; i < values.size(); ++i) {
    written.push_back(values[i] - taken[i].matmul(states[i]));
    if (i + 1 == values.size()) break;
    states.push_back(states[i] * kept[i] + writers[i].matmul(written[i]));
  }
  const at::Tensor readers = of_values(q, r).flatten(2, 3) * decay.reads;
  const at::Tensor out = readers.matmul(at::stack(states)) + scores(q).matmul(at::stack(written));
  return unchunked(out, inputs[2].size(1)).to(inputs[2].scalar_type());
}

/// x, step, decay, b, c, runs.
at::Tensor state_space(const Tensors& inputs) {
  const at::ScalarType dtype = tensor::wide_dtype(inputs[0].scalar_type());
  const auto wide = [&](size_t i) { return inputs[i].to(dtype); };
  const int64_t num_groups = inputs[3].size(2);
  const int64_t r = inputs[0].size(2) / num_groups;
  const int64_t size = chunk_size(inputs[0].size(1));
  const auto in_chunks = [&](const at::Tensor& tokens) { return chunked(tokens, size); };
  // Heads of a group lie behind its tokens: [n, B, G, C, r, P].
  const at::Tensor x = in_chunks((wide(0) * wide(1).unsqueeze(-1)).unflatten(2, {num_groups, r}));
  const at::Tensor b = in_chunks(wide(3));
  const at::Tensor c = in_chunks(wide(4));
  const at::Tensor runs = chunked_runs(inputs[5], size);
  const ChunkDecay decay = chunk_decay(in_chunks(wide(2).unsqueeze(-1)), runs);
  const auto per_head = [&](const at::Tensor& factor) {  // [n, B, N, C, 1] to [n, B, G, C, r, 1]
    return factor.unflatten(2, {num_groups, r}).transpose(-3, -2);
  };
  const at::Tensor scores = of_values(c.matmul(b.transpose(-1, -2)), r) *
                            pair_decay(decay.sums, runs, dtype).unflatten(2, {num_groups, r});
  const at::Tensor within = scores.matmul(x.transpose(3, 4)).transpose(3, 4);
  const at::Tensor inputs_written = (x * per_head(decay.writes)).flatten(-2);
  const Tensors written =
      b.transpose(-1, -2).matmul(inputs_written).unflatten(-1, x.sizes().slice(4)).unbind(0);
  const Tensors kept = decay.whole.unflatten(2, {num_groups, 1, r}).unbind(0);  // [B, G, 1, r, 1]
  Tensors states{at::zeros_like(written[0])};                                   // [B, G, D, r, P]
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
  AM_CHECK(in.decay.dim() == 3 || in.decay.size(3) == in.k.size(3), in.decay.size(-1), " decays");
  return computed_again<delta_rule>({in.q, in.k, in.v, in.decay, in.beta}, in.runs);
}

at::Tensor state_space_scan(const StateSpaceInputs& in) {
  AM_CHECK(in.x.size(2) % in.b.size(2) == 0, in.x.size(2), " heads of ", in.b.size(2));
  return computed_again<state_space>({in.x, in.step, in.decay, in.b, in.c}, in.runs);
}

}  // namespace automodel::kernels
