#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace automodel::kernels {

/// The keys that padding [B, S] and document ids [B, S] (either may be undefined) leave visible, in
/// the form of AttentionBlock::visible_keys. Undefined when neither is given; nullopt when some
/// query's keys are not a single run: documents that begin again, or padding inside one.
std::optional<at::Tensor> visible_keys(const at::Tensor& padding_mask,
                                       const at::Tensor& document_ids);

/// `visible` (of visible_keys, or undefined) of sequences x [B, S, ...], each run cut to the chunk
/// of `chunk` tokens, counted from the run's first, in which its query is. `visible` itself where
/// `chunk` is 0 or no sequence is longer.
at::Tensor chunks_of(const at::Tensor& visible, const at::Tensor& x, int64_t chunk);

/// `visible` likewise, each run cut to the tokens that are less than `window` from its query on
/// either side.
at::Tensor windows_of(const at::Tensor& visible, const at::Tensor& x, int64_t window);

}  // namespace automodel::kernels
