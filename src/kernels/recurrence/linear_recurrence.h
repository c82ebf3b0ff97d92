#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace automodel::kernels {

// Layers that replace attention by a state carried from token to token. Both work in chunks of 64
// tokens, with products inside a chunk and one state between chunks, so time and memory grow
// linearly with the length. They compute in float32 (float64 for float64 values); results have the
// values' dtype. Differentiable in all floating-point inputs; only inputs are saved, and backward
// recomputes the rest.

/// Tokens of a chunk.
inline constexpr int64_t kRecurrenceChunk = 64;

/// The number of the run of equal ids that contains each token: document_ids [B, S] int64 to [B, S]
/// int64, counted from 0 in every row. Undefined for undefined ids.
at::Tensor document_runs(const at::Tensor& document_ids);

/// Inputs of the gated delta rule (Yang et al. 2024), or of Kimi's delta attention, in which each
/// dim of a key has a decay of its own (Kimi Team 2025); B sequences of S tokens.
struct GatedDeltaInputs {
  at::Tensor q;  ///< [B, S, K, D]; q and k are normed to length one here, q divided by sqrt(D)
  at::Tensor k;  ///< [B, S, K, D]
  at::Tensor v;  ///< [B, S, N, E]; N is divisible by K, a key head serves N / K value heads
  /// [B, S, N], or [B, S, N, D] of each row of a state: logarithm of its factor, at most 0
  at::Tensor decay;
  at::Tensor beta;  ///< [B, S, N]: how much of a new value is written
  at::Tensor runs;  ///< [B, S] int64 or undefined: the state is reset between runs
};

/// The rule's outputs [B, S, N, E]. Each head has a state M [D, E] that begins as zeros:
///   M = exp(decay_t) M;  M = M + k_t (beta_t (v_t - k_t^T M));  out_t = q_t^T M
/// where decays of rows multiply M from the left as a diagonal matrix.
at::Tensor gated_delta_rule(const GatedDeltaInputs& inputs);

/// Inputs of Mamba-2's scan (Dao and Gu 2024), B sequences of S tokens.
struct StateSpaceInputs {
  at::Tensor x;      ///< [B, S, N, P]
  at::Tensor step;   ///< [B, S, N]: the factor of a token's input
  at::Tensor decay;  ///< [B, S, N]: logarithm of the state's factor, at most 0
  at::Tensor b;      ///< [B, S, G, D]; N is divisible by G, a group serves N / G heads
  at::Tensor c;      ///< [B, S, G, D]
  at::Tensor runs;   ///< [B, S] int64 or undefined: the state is reset between runs
};

/// The scan's outputs [B, S, N, P]. Each head has a state M [D, P] that begins as zeros:
///   M = exp(decay_t) M + b_t (step_t x_t)^T;  out_t = c_t^T M
at::Tensor state_space_scan(const StateSpaceInputs& inputs);

}  // namespace automodel::kernels
