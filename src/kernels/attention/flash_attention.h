#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "kernels/attention/attention_block.h"

namespace automodel::kernels {

/// PyTorch's FlashAttention kernels (Dao 2023) for a block whose tensors lie on a device that has
/// them: bfloat16, scores never in memory, causal or in both directions, windows, heads that share
/// keys, packed documents and padding. Whole causal sequences go by cuDNN's kernels where it has
/// faster ones.
class FlashAttention final {
 public:
  /// nullopt where the kernels do not compute the block: other dtypes and devices, heads of more
  /// than 256 numbers or not a multiple of 8, values wider than keys, capped scores, biases of
  /// distances, dropout, chosen keys, keys that queries see in part by other rules than those
  /// above.
  static std::optional<FlashAttention> of(const AttentionBlock& block, const Qkv& qkv);

  /// out [B, Q, N, V] in q's dtype, lse [B, N, Q] float32; the block alone, whether it adds or not.
  AttentionResult forward(const Qkv& qkv) const;

  /// The block's share of the gradients, in q's dtype, from the lse and the result of all blocks
  /// and its gradient d_out.
  Qkv backward(const Qkv& qkv, const AttentionResult& result, const at::Tensor& d_out) const;

 private:
  /// The tokens of a batch's documents, one document behind the other.
  struct Documents {
    at::Tensor ends;    ///< int32 [documents + 1] on the device: 0, then where each ends
    at::Tensor tokens;  ///< int64 on the device: which tokens of B x S they are; undefined: all
    int64_t longest = 0;
  };
  static std::optional<Documents> find_documents(const at::Tensor& visible, at::Device device);
  /// find_documents(), once for the layers that ask one after the other.
  static std::optional<Documents> documents_of(const AttentionBlock& block, const Qkv& qkv);

  AttentionResult forward_by_cudnn(const Qkv& qkv) const;
  Qkv backward_by_cudnn(const Qkv& qkv, const AttentionResult& result,
                        const at::Tensor& d_out) const;

  /// [B, S, heads, dim] as the kernels take it: padded to q's dim, and documents' tokens alone.
  at::Tensor packed(const at::Tensor& x) const;
  /// The inverse of packed(), with zeros where there is no document.
  at::Tensor unpacked(const at::Tensor& x, at::IntArrayRef sizes) const;

  int64_t head_dim_ = 0;
  int64_t num_keys_ = 0;  ///< the first ones; no query sees those behind them
  double scale_ = 1;
  bool is_causal_ = true;
  bool is_by_cudnn_ = false;
  std::optional<int64_t> left_, right_;  ///< of a query's own place; none: all
  std::optional<Documents> documents_;
};

}  // namespace automodel::kernels
