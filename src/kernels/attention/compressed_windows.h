#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace automodel::kernels {

/// The windows of `rate` tokens, one behind the other from the first token of every document, that
/// DeepSeek V4 compresses to one key each. A document's last tokens, fewer than `rate`, make none.
/// Padding before a document is in none; padding behind it goes on with its windows, which nobody
/// but this padding sees. B sequences of S tokens; W is the most windows of a sequence, and one
/// with fewer has rows at its end that nobody sees.
struct CompressedWindows {
  at::Tensor tokens;        ///< [B, W, rate] int64: positions in the sequence
  at::Tensor follows;       ///< [B, W] bool: whether the window before is of the same document
  at::Tensor position_ids;  ///< [B, W] int64: those of the windows' first tokens, for rotation
  at::Tensor visible_keys;  ///< [B, S, 2] int64: the first window of a query's document, and the
                            ///< one after the last that ends with the query or before

  int64_t num_windows() const { return tokens.size(1); }
};

struct WindowOptions {
  int64_t rate = 1;
  at::Tensor visible_keys;  ///< of kernels::visible_keys: each token's document; or undefined
  at::Tensor position_ids;  ///< [B, S]; or undefined: 0, 1, ... in every sequence
};

/// The windows of the tokens input_ids [B, S], on their device.
CompressedWindows compressed_windows(const at::Tensor& input_ids, const WindowOptions& options);

/// What every window's tokens give: [B, W, D], the sum of values weighted by a softmax of
/// `gate` + `bias` over the window, dim by dim, in float32 or wider; of values' dtype. Of values
/// and gate [B, S, D] and bias [rate, D] a window has its own tokens. Of values and gate [B, S, 2
/// D] and bias [rate, 2 D] windows overlap: the last D dims of their own tokens and the first D of
/// those in the window before, if that is of the same document. Differentiable in values, gate and
/// bias.
at::Tensor pooled_windows(const at::Tensor& values, const at::Tensor& gate, const at::Tensor& bias,
                          const CompressedWindows& windows, int64_t dim);

/// The runs [B, S, 2] of a sliding window's tokens: each query's last `window`, itself included, in
/// `visible_keys` (kernels::visible_keys, or undefined).
at::Tensor sliding_runs(const at::Tensor& input_ids, const at::Tensor& visible_keys,
                        int64_t window);

}  // namespace automodel::kernels
