#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "models/block_denoiser.h"

namespace automodel::models::diffusion_gemma {

/// What each canvas token sees. [B, R, 2]: the first key and the one behind the last.
struct CanvasVisibility {
  at::Tensor text;          ///< the prompt and the response's blocks before its own
  at::Tensor sliding_text;  ///< of these, those in the window that ends where its block begins
  at::Tensor canvas;        ///< its own block; padding sees itself
};
CanvasVisibility canvas_visibility(const BlockDiffusionBatch& batch, int64_t window);

/// [B, R]: each canvas token's place in its text.
at::Tensor canvas_positions(const BlockDiffusionBatch& batch);

/// [B, R] bool: behind the response.
at::Tensor canvas_padding(const BlockDiffusionBatch& batch);

}  // namespace automodel::models::diffusion_gemma
