#include "kernels/attention/flash_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/device/device_kernels.h"
#include "tensor/memory.h"

namespace automodel::kernels {

namespace {

constexpr int64_t kMostHeadDim = 256;

bool has_kernels(const AttentionBlock& block, const Qkv& qkv) {
  const auto* const kernels = device::kernels_for({qkv.q, qkv.k, qkv.v});
  const int64_t head_dim = qkv.q.size(3);
  return kernels != nullptr && qkv.q.scalar_type() == at::kBFloat16 &&
         kernels->has_flash_attention() && qkv.q.numel() > 0 && head_dim <= kMostHeadDim &&
         head_dim % 8 == 0 && qkv.v.size(3) <= head_dim && block.softcap <= 0 &&
         !block.dropout.mask.drops() && !block.chosen_keys.defined() &&
         !block.distance_bias.defined();
}

/// Whether cuDNN computes a block of causal attention faster: whole sequences of one length. It
/// makes a plan for every length, which costs a good part of a second: lengths that are as the data
/// has them, and not those of full rows, are left to FlashAttention.
bool has_cudnn_kernels(const AttentionBlock& block, const Qkv& qkv) {
  constexpr int64_t kRowMultiple = 128, kMostDim = 128;
  const int64_t length = qkv.q.size(1), head_dim = qkv.q.size(3);
  return device::kernels_for({qkv.q})->has_cudnn_attention() && length % kRowMultiple == 0 &&
         length == qkv.k.size(1) && block.first_query == block.first_key && block.window <= 0 &&
         !block.visible_keys.defined() && head_dim <= kMostDim && qkv.v.size(3) == head_dim;
}

/// [B, S, heads, dim] as [B, heads, S, dim], in the same memory where that has no gaps.
at::Tensor heads_first(const at::Tensor& x) {
  return x.contiguous().transpose(1, 2);
}

/// The lengths of documents, and their tokens, of one sequence after the other.
struct Lengths {
  std::vector<int32_t> ends = {0};
  std::vector<int64_t> tokens;

  /// False unless the queries that see a run of keys are, but for padding, the run.
  bool add_sequence(const int64_t* runs, int64_t length, int64_t first) {
    for (int64_t begin = 0, end = 0; begin < length; begin = end) {
      const int64_t* const run = runs + 2 * begin;
      while (end < length && std::equal(run, run + 2, runs + 2 * end)) ++end;
      if (run[0] >= run[1]) continue;
      if (run[0] < begin || run[1] > end) return false;
      for (int64_t token = run[0]; token < run[1]; ++token) tokens.push_back(first + token);
      ends.push_back(static_cast<int32_t>(tokens.size()));
    }
    return true;
  }
};

}  // namespace

std::optional<FlashAttention::Documents> FlashAttention::find_documents(const at::Tensor& visible,
                                                                        at::Device device) {
  const at::Tensor runs = visible.cpu().contiguous();
  const int64_t batch = runs.size(0), length = runs.size(1);
  Lengths lengths;
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t* const of_sequence = runs.data_ptr<int64_t>() + 2 * b * length;
    if (!lengths.add_sequence(of_sequence, length, b * length)) return std::nullopt;
  }
  if (lengths.tokens.empty()) return std::nullopt;
  Documents documents;
  for (size_t i = 1; i < lengths.ends.size(); ++i) {
    documents.longest = std::max<int64_t>(documents.longest, lengths.ends[i] - lengths.ends[i - 1]);
  }
  documents.ends = tensor::moved_to(at::tensor(lengths.ends, at::kInt), device);
  if (std::cmp_less(lengths.tokens.size(), batch * length)) {
    documents.tokens = tensor::moved_to(at::tensor(lengths.tokens, at::kLong), device);
  }
  return documents;
}

std::optional<FlashAttention::Documents> FlashAttention::documents_of(const AttentionBlock& block,
                                                                      const Qkv& qkv) {
  struct Last {
    at::Tensor visible;  // held, so that its memory is nobody else's
    at::Device device = at::kCPU;
    std::optional<Documents> documents;
  };
  thread_local Last last;  // of a batch's many layers
  const at::Tensor& visible = block.visible_keys;
  const int64_t batch = qkv.q.size(0), length = qkv.q.size(1);
  const bool is_whole = qkv.k.size(1) == length && block.first_key == 0 &&
                        visible.size(0) == batch && visible.size(1) == length &&
                        batch * length <= std::numeric_limits<int32_t>::max();
  if (!is_whole) return std::nullopt;
  const at::Device device = qkv.q.device();
  const bool is_last = last.visible.defined() && last.device == device &&
                       last.visible.data_ptr() == visible.data_ptr() &&
                       last.visible.sizes() == visible.sizes();
  if (!is_last) last = {visible, device, find_documents(visible, device)};
  return last.documents;
}

std::optional<FlashAttention> FlashAttention::of(const AttentionBlock& block, const Qkv& qkv) {
  const int64_t num_queries = qkv.q.size(1);
  const int64_t offset = block.first_query - block.first_key;
  if (!has_kernels(block, qkv) || offset < 0) return std::nullopt;
  FlashAttention flash;
  flash.head_dim_ = qkv.q.size(3);
  flash.scale_ = block.scale;
  flash.num_keys_ = std::min(qkv.k.size(1), num_queries + offset);
  // The kernels put the last query beside the last key and count from there.
  const int64_t right = offset - (flash.num_keys_ - num_queries);
  flash.is_causal_ = right == 0;
  if (right > 0 && offset < flash.num_keys_ - 1) {
    if (right >= flash.num_keys_) return std::nullopt;  // the kernels would take it for no limit
    flash.right_ = right;
  }
  flash.is_by_cudnn_ = flash.is_causal_ && has_cudnn_kernels(block, qkv);
  if (block.window > 0) {
    const int64_t left = block.window - 1 - right;
    if (left < 0) return std::nullopt;
    flash.left_ = left;
    flash.right_ = right;
  }
  if (block.visible_keys.defined()) {
    if (block.has_others_keys || (!flash.is_causal_ && flash.right_)) return std::nullopt;
    flash.documents_ = documents_of(block, qkv);
    if (!flash.documents_) return std::nullopt;
  }
  return flash;
}

at::Tensor FlashAttention::packed(const at::Tensor& x) const {
  at::Tensor out = x;
  if (x.size(3) < head_dim_) out = at::constant_pad_nd(out, {0, head_dim_ - x.size(3)});
  if (documents_) {
    out = out.reshape({-1, out.size(2), out.size(3)});
    if (documents_->tokens.defined()) out = out.index_select(0, documents_->tokens);
  }
  return out.contiguous();
}

at::Tensor FlashAttention::unpacked(const at::Tensor& x, at::IntArrayRef sizes) const {
  at::Tensor out = x.narrow(-1, 0, sizes[3]);
  if (documents_ && documents_->tokens.defined()) {
    const at::Tensor all = at::zeros({sizes[0] * sizes[1], sizes[2], sizes[3]}, x.options());
    out = all.index_copy_(0, documents_->tokens, out);
  }
  return out.reshape(sizes);
}

AttentionResult FlashAttention::forward_by_cudnn(const Qkv& qkv) const {
  auto [out, lse, ends_q, ends_k, longest_q, longest_k, seed, offset, mask] =
      at::_scaled_dot_product_cudnn_attention(heads_first(qkv.q), heads_first(qkv.k),
                                              heads_first(qkv.v), std::nullopt,
                                              /*compute_log_sumexp=*/true, 0.0,
                                              /*is_causal=*/true, false, scale_);
  return {out.transpose(1, 2).contiguous(),
          lse.reshape({qkv.q.size(0), qkv.q.size(2), qkv.q.size(1)})};
}

Qkv FlashAttention::backward_by_cudnn(const Qkv& qkv, const AttentionResult& result,
                                      const at::Tensor& d_out) const {
  const at::ScalarType dtype = qkv.q.scalar_type();
  const int64_t length = qkv.q.size(1);
  const at::Tensor none, random = at::empty({}, qkv.q.options().dtype(at::kLong));
  auto [d_q, d_k, d_v] = at::_scaled_dot_product_cudnn_attention_backward(
      heads_first(d_out.to(dtype)), heads_first(qkv.q), heads_first(qkv.k), heads_first(qkv.v),
      heads_first(result.out.to(dtype)), result.lse.contiguous().unsqueeze(-1), random, random,
      none, none, none, length, length, 0.0,
      /*is_causal=*/true, scale_);
  return {d_q.transpose(1, 2), d_k.transpose(1, 2), d_v.transpose(1, 2)};
}

AttentionResult FlashAttention::forward(const Qkv& qkv) const {
  if (is_by_cudnn_) return forward_by_cudnn(qkv);
  const int64_t batch = qkv.q.size(0), num_queries = qkv.q.size(1), num_heads = qkv.q.size(2);
  const int64_t num_keys = documents_ ? documents_->longest : num_keys_;
  const auto ends = documents_ ? std::optional(documents_->ends) : std::nullopt;
  auto [out, lse, random, unused, mask] = at::_flash_attention_forward(
      packed(qkv.q), packed(qkv.k.narrow(1, 0, num_keys_)), packed(qkv.v.narrow(1, 0, num_keys_)),
      ends, ends, documents_ ? documents_->longest : num_queries, num_keys, 0.0, is_causal_, false,
      scale_, left_, right_);
  if (documents_) {  // [N, tokens]
    if (documents_->tokens.defined()) {
      const at::Tensor all = at::full({num_heads, batch * num_queries},
                                      -std::numeric_limits<float>::infinity(), lse.options());
      lse = all.index_copy_(1, documents_->tokens, lse);
    }
    lse = lse.view({num_heads, batch, num_queries}).transpose(0, 1).contiguous();
  }
  return {unpacked(out, {batch, num_queries, num_heads, qkv.v.size(3)}), lse};
}

Qkv FlashAttention::backward(const Qkv& qkv, const AttentionResult& result,
                             const at::Tensor& d_out) const {
  if (is_by_cudnn_) return backward_by_cudnn(qkv, result, d_out);
  const at::ScalarType dtype = qkv.q.scalar_type();
  const at::Tensor k = qkv.k.narrow(1, 0, num_keys_), v = qkv.v.narrow(1, 0, num_keys_);
  at::Tensor lse = result.lse.contiguous();
  if (documents_) {
    lse = lse.transpose(0, 1).reshape({qkv.q.size(2), -1});
    if (documents_->tokens.defined()) lse = lse.index_select(1, documents_->tokens);
    lse = lse.contiguous();
  }
  // What a forward with dropout would have drawn.
  const at::Tensor random = at::empty({2}, qkv.q.options().dtype(at::kUInt64));
  auto [d_q, d_k, d_v] = at::_flash_attention_backward(
      packed(d_out.to(dtype)), packed(qkv.q), packed(k), packed(v), packed(result.out.to(dtype)),
      lse, documents_ ? documents_->ends : at::Tensor(),
      documents_ ? documents_->ends : at::Tensor(),
      documents_ ? documents_->longest : qkv.q.size(1),
      documents_ ? documents_->longest : num_keys_, 0.0, is_causal_, random, random, scale_, left_,
      right_);
  const auto of_all_keys = [&](const at::Tensor& x, const at::Tensor& like) {
    const int64_t hidden = like.size(1) - num_keys_;
    return hidden == 0 ? x : at::constant_pad_nd(x, {0, 0, 0, 0, 0, hidden});
  };
  return {unpacked(d_q, qkv.q.sizes()), of_all_keys(unpacked(d_k, k.sizes()), qkv.k),
          of_all_keys(unpacked(d_v, v.sizes()), qkv.v)};
}

}  // namespace automodel::kernels
