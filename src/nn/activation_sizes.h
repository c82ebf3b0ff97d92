#pragma once

#include <cstdint>

namespace automodel::nn {

/// The batch that activations are estimated for, and the element type they are computed in.
struct ActivationShape {
  int64_t num_sequences = 1;
  int64_t sequence_length = 1;
  int64_t element_size = 4;
  bool is_plain = false;   ///< neither float32 nor bfloat16: the plain operations, no fused kernels
  bool is_part = false;    ///< of longer sequences: attention goes by blocks in float32
  bool on_device = false;  ///< no CPU: plain operations in any dtype, attention by blocks

  /// Whether the fused kernels run, in float32 or bfloat16.
  bool is_fused() const { return !is_plain && !on_device; }

  // Equal parts that tensor parallelism makes, of which this rank computes one.
  int64_t num_head_parts = 1;
  int64_t num_mlp_parts = 1;
  int64_t num_vocab_parts = 1;
  int64_t num_sequence_parts = 1;  ///< of the stream between the layers

  /// Ranks that hold different experts, and how many ranks have the same tokens for them.
  int64_t num_expert_ranks = 1;
  int64_t num_same_token_ranks = 1;

  int64_t tokens() const { return num_sequences * sequence_length; }
};

/// Bytes of one micro-batch's intermediate tensors on one rank. "Kept" is what autograd saves from
/// forward to backward; the others come and go and say how much is there at once at most, beyond
/// what is kept at that time.
struct ActivationSizes {
  int64_t embedding = 0;        ///< kept: the embedded tokens, which the first block reads
  int64_t block_kept = 0;       ///< kept by one block, its output included
  int64_t block_input = 0;      ///< kept by one block that is computed again in backward
  int64_t block_forward = 0;    ///< while a block's forward runs
  int64_t block_backward = 0;   ///< while its backward runs, gradients of single weights included
  int64_t experts_input = 0;    ///< of a layer of experts, behind the experts' backward
  int64_t final_norm_kept = 0;  ///< kept by the last norm, the head's input included
  int64_t head_kept = 0;        ///< gradients that the head computes in its forward
  int64_t logits = 0;           ///< a chunk of logits and what is computed beside it

  /// What a layer of experts that are on several ranks sends to them in its forward and backward,
  /// this rank's own part included: with equally likely experts, each as often as the others.
  int64_t exchanged_forward = 0;
  int64_t exchanged_backward = 0;
};

}  // namespace automodel::nn
