#include "kernels/attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace automodel::kernels {

namespace {

/// True where a query may see a key: [1 or B, 1, S, S]; undefined when only causality counts.
at::Tensor visible(const at::Tensor& q, const AttentionOptions& options) {
  const int64_t length = q.size(1);
  const at::Tensor positions = at::arange(length, q.options().dtype(at::kLong));
  const at::Tensor distance = positions.unsqueeze(1) - positions.unsqueeze(0);
  at::Tensor mask = distance.ge(0);
  if (options.window > 0) mask = mask.logical_and(distance.lt(options.window));
  mask = mask.unsqueeze(0).unsqueeze(0);
  if (options.padding_mask.defined()) {
    mask = mask.logical_and(options.padding_mask.logical_not().unsqueeze(1).unsqueeze(1));
  }
  if (options.document_ids.defined()) {
    const at::Tensor& ids = options.document_ids;
    mask = mask.logical_and(ids.unsqueeze(2).eq(ids.unsqueeze(1)).unsqueeze(1));
  }
  return mask;
}

/// k or v [B, S, K, H] as [B, N, S, H].
at::Tensor expand_heads(const at::Tensor& x, int64_t num_heads) {
  const int64_t repeats = num_heads / x.size(2);
  at::Tensor heads = x.transpose(1, 2);
  if (repeats == 1) return heads;
  return heads.unsqueeze(2)
      .expand({x.size(0), x.size(2), repeats, x.size(1), x.size(3)})
      .reshape({x.size(0), num_heads, x.size(1), x.size(3)});
}

double scale_of(const at::Tensor& q, const AttentionOptions& options) {
  return options.scale != 0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(q.size(3)));
}

}  // namespace

AttentionResult causal_attention_reference(const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v, const AttentionOptions& options) {
  const int64_t num_heads = q.size(2);
  const at::Tensor keys = expand_heads(k, num_heads).to(at::kFloat);
  const at::Tensor values = expand_heads(v, num_heads).to(at::kFloat);
  at::Tensor scores =
      at::matmul(q.transpose(1, 2).to(at::kFloat), keys.transpose(-1, -2)) * scale_of(q, options);
  if (options.softcap > 0) scores = at::tanh(scores / options.softcap) * options.softcap;
  const at::Tensor mask = visible(q, options);
  const at::Tensor is_blind = mask.any(-1, true).logical_not();
  // A query that sees nothing gets finite scores and then zeros, so that no NaN arises.
  scores = scores.masked_fill(mask.logical_not().logical_and(is_blind.logical_not()),
                              -std::numeric_limits<float>::infinity());
  AttentionResult result;
  result.lse = scores.logsumexp(-1);
  at::Tensor probabilities = at::softmax(scores, -1).masked_fill(is_blind, 0.0);
  if (options.dropout > 0) probabilities = probabilities * options.dropout_mask;
  result.out = at::matmul(probabilities, values).transpose(1, 2).to(q.scalar_type());
  return result;
}

AttentionResult causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const AttentionOptions& options) {
  const bool is_plain = options.softcap == 0 && options.dropout == 0 &&
                        !options.padding_mask.defined() && !options.document_ids.defined() &&
                        (options.window == 0 || options.window >= q.size(1));
  if (!is_plain) return causal_attention_reference(q, k, v, options);
  const at::Tensor out = at::scaled_dot_product_attention(
      q.transpose(1, 2), expand_heads(k, q.size(2)), expand_heads(v, q.size(2)), {}, 0.0, true,
      scale_of(q, options));
  return {out.transpose(1, 2), at::Tensor()};
}

}  // namespace automodel::kernels
