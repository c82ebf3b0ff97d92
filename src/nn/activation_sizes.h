#pragma once

#include <cstdint>

namespace automodel::nn {

/// The batch for which activations are estimated, and how they are computed.
struct ActivationShape {
  int64_t num_sequences = 1;
  int64_t sequence_length = 1;
  int64_t element_size = 4;
  bool is_plain = false;   ///< neither float32 nor bfloat16: plain operations, no fused kernels
  bool is_part = false;    ///< of longer sequences: attention by blocks in float32
  bool on_device = false;  ///< not a CPU: kernels for rows alone, attention by blocks
  /// MLPs' second projections have adapters with dropout, which keep their input.
  bool has_dropped_down = false;

  /// Whether the CPU's fused kernels run, in float32 or bfloat16.
  bool is_fused() const { return !is_plain && !on_device; }
  /// Whether norms, heads, gated activations, dropout and losses go by kernels for rows, the CPU's
  /// fused ones or a device's.
  bool has_row_kernels() const { return !is_plain; }

  // Numbers of equal parts, by tensor parallelism, of which this rank computes one.
  int64_t num_head_parts = 1;
  int64_t num_mlp_parts = 1;
  int64_t num_vocab_parts = 1;
  int64_t num_sequence_parts = 1;  ///< of the hidden states between layers

  /// Number of ranks that hold different experts, and how many of them have the same tokens.
  int64_t num_expert_ranks = 1;
  int64_t num_same_token_ranks = 1;

  int64_t tokens() const { return num_sequences * sequence_length; }
};

/// Bytes of one micro-batch's intermediate tensors on one rank. "Kept" is what autograd saves from
/// forward to backward; other members are the most that is needed at once beside what is kept then.
struct ActivationSizes {
  int64_t embedding = 0;        ///< kept: the embedded tokens, which the first block reads
  int64_t block_kept = 0;       ///< kept by one block, its output included
  int64_t block_input = 0;      ///< kept by one block that is recomputed in backward
  int64_t block_forward = 0;    ///< while a block's forward runs
  int64_t block_backward = 0;   ///< while its backward runs, including single weights' gradients
  int64_t experts_input = 0;    ///< of a layer of experts, after the experts' backward
  int64_t final_norm_kept = 0;  ///< kept by the last norm, including the head's input
  int64_t head_kept = 0;        ///< gradients that the head computes in its forward
  int64_t logits = 0;           ///< a chunk of logits and its temporaries

  /// What a layer sends to experts on several ranks in forward and backward, including to this
  /// rank, if all experts are chosen equally often.
  int64_t exchanged_forward = 0;
  int64_t exchanged_backward = 0;
};

}  // namespace automodel::nn
