#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "nn/attention_core.h"

namespace automodel::nn {

/// Attention of sequences that get one token after the other: keys and values of the tokens before
/// are kept, so that a forward of the newest ones is enough. For the causal attention of one model
/// on one rank, which calls attend() once a layer and in the same order in every forward. Not
/// differentiable.
class CachedAttention final : public AttentionCore {
 public:
  CachedAttention();

  /// The next forward has the beginnings [B, S] of sequences, `lengths` tokens each with padding
  /// behind them. What was kept is forgotten.
  void begin(const std::vector<int64_t>& lengths);
  /// The next forward has the last token of every sequence, which has so many tokens now: one more
  /// than before, or as many, and then the last one takes its own place again.
  void go_on(const std::vector<int64_t>& lengths);
  /// Keeps nothing any more: until begin(), forwards are of whole sequences.
  void forget();

  kernels::AttentionResult attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const kernels::AttentionOptions& options) override;

 private:
  /// Keys or values of a layer [B, capacity, K, H], of which each sequence has its tokens' first.
  struct Layer {
    at::Tensor keys, values;
  };
  /// [B, 1, 2]: the keys that each sequence's newest token sees.
  at::Tensor visible_keys(int64_t window, int64_t chunk);
  void keep(at::Tensor& kept, const at::Tensor& newest) const;

  std::shared_ptr<AttentionCore> whole_;
  std::vector<int64_t> lengths_;  ///< with the newest tokens; empty: nothing is kept
  bool is_beginning_ = false;     ///< the forward has the sequences' beginnings
  std::vector<Layer> layers_;
  size_t next_layer_ = 0;
  std::map<std::pair<int64_t, int64_t>, at::Tensor> visible_;  ///< of this forward, by window and
                                                               ///< chunk
};

}  // namespace automodel::nn
