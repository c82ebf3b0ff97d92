#include "nn/cached_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "kernels/attention/attention_block.h"

namespace automodel::nn {

CachedAttention::CachedAttention() : whole_(make_local_attention_core()) {}

void CachedAttention::begin(const std::vector<int64_t>& lengths) {
  AM_CHECK(!lengths.empty() && std::ranges::min(lengths) > 0, "sequences have tokens");
  forget();
  lengths_ = lengths;
  is_beginning_ = true;
}

void CachedAttention::go_on(const std::vector<int64_t>& lengths) {
  AM_CHECK(!lengths_.empty() && lengths.size() == lengths_.size(), "the sequences have begun");
  lengths_ = lengths;
  is_beginning_ = false;
  next_layer_ = 0;
  visible_.clear();
}

void CachedAttention::forget() {
  lengths_.clear();
  layers_.clear();
  visible_.clear();
  next_layer_ = 0;
}

at::Tensor CachedAttention::visible_keys(int64_t window, int64_t chunk) {
  at::Tensor& visible = visible_[{window, chunk}];
  if (visible.defined()) return visible;
  std::vector<int64_t> bounds;
  for (const int64_t length : lengths_) {
    const int64_t of_window = window > 0 ? std::max<int64_t>(length - window, 0) : 0;
    bounds.push_back(chunk > 0 ? (length - 1) / chunk * chunk : of_window);
    bounds.push_back(length);
  }
  visible = at::tensor(bounds).view({-1, 1, 2});
  return visible;
}

/// Puts the newest tokens' keys or values [B, 1, K, H] behind those that are kept.
void CachedAttention::keep(at::Tensor& kept, const at::Tensor& newest) const {
  const int64_t longest = std::ranges::max(lengths_);
  if (kept.size(1) < longest) {
    std::vector<int64_t> sizes = kept.sizes().vec();
    sizes[1] = 2 * longest;
    const at::Tensor larger = at::zeros(sizes, kept.options());
    larger.narrow(1, 0, kept.size(1)).copy_(kept);
    kept = larger;
  }
  for (int64_t i = 0; i < kept.size(0); ++i) {
    kept[i].narrow(0, lengths_[static_cast<size_t>(i)] - 1, 1).copy_(newest[i]);
  }
}

kernels::AttentionResult CachedAttention::attend(const at::Tensor& q, const at::Tensor& k,
                                                 const at::Tensor& v,
                                                 const kernels::AttentionOptions& options) {
  if (lengths_.empty() || is_beginning_) {
    if (is_beginning_) layers_.push_back({k.contiguous(), v.contiguous()});
    return whole_->attend(q, k, v, options);
  }
  AM_CHECK(options.is_causal && !options.chosen_keys.defined() && !options.dropout.mask.drops(),
           "this attention needs more than the keys of the tokens before");
  AM_CHECK(next_layer_ < layers_.size() && q.size(1) == 1, "a token for each layer");
  Layer& layer = layers_[next_layer_++];
  keep(layer.keys, k);
  keep(layer.values, v);
  const int64_t longest = std::ranges::max(lengths_);
  kernels::AttentionOptions of_last = options;
  of_last.visible_keys = visible_keys(options.window, options.chunk);
  return kernels::attention_of_last(q, layer.keys.narrow(1, 0, longest),
                                    layer.values.narrow(1, 0, longest), of_last);
}

}  // namespace automodel::nn
