#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace automodel::kernels {

/// The keys that padding [B, S] and document ids [B, S] (either may be undefined) leave visible, in
/// the form of AttentionBlock::visible_keys. Undefined when neither is given; nullopt when some
/// query's keys are not a single run: documents that begin again, or padding inside one.
std::optional<at::Tensor> visible_keys(const at::Tensor& padding_mask,
                                       const at::Tensor& document_ids);

}  // namespace automodel::kernels
