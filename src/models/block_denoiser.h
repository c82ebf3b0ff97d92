#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace automodel::models {

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

/// What a batch's losses are divided by and weighted with.
struct BlockDiffusionScale {
  double canvas_divisor = 1;
  double text_divisor = 1;
  double text_weight = 1;  ///< of the text's loss beside the canvas's
};

/// Sums of cross-entropies by their divisors.
struct BlockDiffusionLoss {
  at::Tensor total;   ///< float32 scalar with a graph, both losses
  at::Tensor canvas;  ///< the canvas's share of it, detached
};

/// What a CausalLM is besides when block diffusion can train it.
class BlockDenoiser {
 public:
  virtual ~BlockDenoiser() = default;

  /// Reads the text, denoises its canvas once without a graph (where is_conditioned is defined) and
  /// once with it.
  virtual BlockDiffusionLoss block_diffusion_loss(const BlockDiffusionBatch& batch,
                                                  const BlockDiffusionScale& scale,
                                                  int64_t ignore_index) = 0;
  /// Tokens of a canvas that are denoised together where a recipe says nothing of it.
  virtual int64_t canvas_length() const = 0;
  /// Whether a pass can be conditioned on one without a graph before it.
  virtual bool has_self_conditioning() const = 0;
};

}  // namespace automodel::models
