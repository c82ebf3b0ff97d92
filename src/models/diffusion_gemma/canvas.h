#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "models/block_denoiser.h"

namespace automodel::models::diffusion_gemma {

/// The keys that each canvas token sees: [B, R, 2], the first key and the one after the last.
struct CanvasVisibility {
  at::Tensor text;          ///< the prompt and the response's blocks before its own
  at::Tensor sliding_text;  ///< of these, those in the window that ends where the block begins
  at::Tensor canvas;        ///< its own block; a padding token sees itself
};
CanvasVisibility canvas_visibility(const BlockDiffusionBatch& batch, int64_t window);

/// [B, R]: each canvas token's position in its text.
at::Tensor canvas_positions(const BlockDiffusionBatch& batch);

/// [B, R] bool: true after the response's end.
at::Tensor canvas_padding(const BlockDiffusionBatch& batch);

}  // namespace automodel::models::diffusion_gemma
