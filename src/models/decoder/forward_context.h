#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "kernels/rope.h"
#include "models/causal_lm.h"

namespace automodel::models::decoder {

/// What every block of one forward pass needs besides its input; shared by the blocks and kept by
/// those that are computed again in the backward pass.
struct ForwardContext {
  at::Tensor position_ids;
  at::Tensor padding_mask;
  at::Tensor document_ids;
  std::vector<kernels::RopeTable> ropes;  ///< as in DecoderConfig::ropes
  bool is_training = false;
  DropoutContext dropout;
};

/// A mask of the given shape on x's device and dtype: 0 or 1 / (1 - p), keyed by the context and
/// the site ("layers.3.mlp").
at::Tensor dropout_mask(const ForwardContext& context, std::string_view site, at::IntArrayRef shape,
                        const at::Tensor& like, double p);

/// x times such a mask in training; x itself otherwise or when p is 0.
at::Tensor dropout(const at::Tensor& x, const ForwardContext& context, std::string_view site,
                   double p);

}  // namespace automodel::models::decoder
