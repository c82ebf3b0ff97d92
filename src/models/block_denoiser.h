#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace automodel::models {

/// One micro-batch of block diffusion: B texts of S tokens, read causally, and for each text a
/// canvas of R noised tokens in place of its response, in blocks that are denoised independently.
/// Tensors are int64 unless stated; lengths are on the CPU.
struct BlockDiffusionBatch {
  at::Tensor input_ids;         ///< [B, S], without noise
  at::Tensor padding_mask;      ///< [B, S] bool, or undefined
  at::Tensor text_labels;       ///< [B, S], the next token or -100; undefined: no text loss
  at::Tensor prefix_lengths;    ///< [B]: positions at which responses begin
  at::Tensor response_lengths;  ///< [B], at most R
  at::Tensor canvas_ids;        ///< [B, R]; tokens after a response are padding
  at::Tensor canvas_labels;     ///< [B, R], the original token or -100
  at::Tensor is_conditioned;    ///< [B] bool: conditioned on a first pass; undefined: no first pass
  int64_t block_size = 0;       ///< tokens of a canvas that are denoised together

  BlockDiffusionBatch to(at::Device device) const;
};

/// Divisors and weight of a batch's losses.
struct BlockDiffusionScale {
  double canvas_divisor = 1;
  double text_divisor = 1;
  double text_weight = 1;  ///< weight of the text's loss; the canvas's is 1
};

/// Sums of cross-entropies divided by their divisors.
struct BlockDiffusionLoss {
  at::Tensor total;   ///< float32 scalar with a graph, both losses
  at::Tensor canvas;  ///< the canvas's part of it, detached
};

/// The interface of a CausalLM that block diffusion can train.
class BlockDenoiser {
 public:
  virtual ~BlockDenoiser() = default;

  /// Reads the text, denoises its canvas once without a graph (if is_conditioned is defined), and
  /// once with a graph.
  virtual BlockDiffusionLoss block_diffusion_loss(const BlockDiffusionBatch& batch,
                                                  const BlockDiffusionScale& scale,
                                                  int64_t ignore_index) = 0;
  /// Tokens of a canvas that are denoised together when the recipe does not say.
  virtual int64_t canvas_length() const = 0;
  /// Whether a pass can be conditioned on an earlier one without a graph.
  virtual bool has_self_conditioning() const = 0;
};

}  // namespace automodel::models
