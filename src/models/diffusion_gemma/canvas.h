#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace automodel::models::diffusion_gemma {

/// One micro-batch of block diffusion: B texts of S tokens, read causally, and for each a canvas of
/// R noised tokens in place of its response, in blocks that are denoised independently. int64
/// unless said; lengths on the CPU.
struct BlockDiffusionBatch {
  at::Tensor input_ids;         ///< [B, S], without noise
  at::Tensor padding_mask;      ///< [B, S] bool, or undefined
  at::Tensor text_labels;       ///< [B, S], the next token or -100; undefined: no loss of the text
  at::Tensor prefix_lengths;    ///< [B]: where responses begin
  at::Tensor response_lengths;  ///< [B], at most R
  at::Tensor canvas_ids;        ///< [B, R]; tokens behind a response are padding
  at::Tensor canvas_labels;     ///< [B, R], the token without noise or -100
  at::Tensor is_conditioned;    ///< [B] bool: conditioned on a first pass; undefined: no first pass
  int64_t block_size = 0;       ///< tokens of a canvas that are denoised together

  BlockDiffusionBatch to(at::Device device) const;
};

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
