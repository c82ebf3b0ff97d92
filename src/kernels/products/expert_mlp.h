#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/layers/activation.h"

namespace automodel::kernels {

/// The function between an expert's two products.
struct ExpertOptions {
  Activation activation = Activation::kSilu;
  bool is_gated = true;        ///< act(gate) * up; else act(up)
  bool is_transposed = false;  ///< weights are stored [E, in, out]
  /// GPT-OSS: gate and up are the even and odd columns; gate is clamped from above and up on both
  /// sides by `limit`; the result is gate * sigmoid(alpha * gate) * (up + 1).
  bool is_clamped = false;
  double alpha = 1.702;
  double limit = 7.0;
  GateBounds bounds = {};  ///< of gate and up before the activation (bounded_gate_up)
};

/// Low-rank adapters of E experts: each product of an expert adds scale * (input A^T) B^T.
struct ExpertLora {
  at::Tensor up_a;    ///< [E, r, D]
  at::Tensor up_b;    ///< [E, U, r]
  at::Tensor down_a;  ///< [E, r, I]
  at::Tensor down_b;  ///< [E, D, r]
  double scale = 1;

  bool is_there() const { return up_a.defined(); }
};

/// Weights of E experts of I inner dims over D dims; U is 2 I when gated, else I.
struct ExpertWeights {
  at::Tensor up;         ///< [E, U, D]: rows of gate, then of up; [E, D, U] when transposed
  at::Tensor up_bias;    ///< [E, U] or undefined
  at::Tensor down;       ///< [E, D, I]; [E, I, D] when transposed
  at::Tensor down_bias;  ///< [E, D] or undefined
  ExpertLora lora = {};  ///< undefined tensors: none; else the weights are frozen
  /// [E, I, D], of gates that lie apart: `up` is [E, I, D] then. Not transposed, without biases.
  at::Tensor gate = {};
};

/// x [T, D]; expert_ids [T, k] int64, -1 for none; weights [T, k] float32 or x's dtype. Returns [T,
/// D]: row t is the sum over j of weights[t, j] * mlp of expert_ids[t, j] (x[t]), in the order of j
/// whatever the experts. Differentiable in x, weights and the experts' weights (with adapters: in
/// the adapters). Rows of one expert are multiplied together and weighted before the second
/// product; neither the gathered rows nor the results of single experts are saved.
at::Tensor expert_mlp(const at::Tensor& x, const at::Tensor& expert_ids, const at::Tensor& weights,
                      const ExpertWeights& experts, const ExpertOptions& options);

/// expert_mlp() by ATen's operations and autograd, one expert after the other, weighted at the end.
at::Tensor expert_mlp_reference(const at::Tensor& x, const at::Tensor& expert_ids,
                                const at::Tensor& weights, const ExpertWeights& experts,
                                const ExpertOptions& options);

}  // namespace automodel::kernels
