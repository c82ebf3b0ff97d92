#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/causal_lm.h"
#include "tensor/named_tensors.h"

namespace automodel::models {

/// The worst differences between our values of one kind and the reference's.
struct ParityDifference {
  double worst_absolute = 0;
  double worst_relative = 0;     ///< logits: by the largest logit; loss: by the loss; gradients: L2
                                 ///< norm of the difference by the norm of the reference
  std::string absolute_culprit;  ///< the tensor with the worst absolute difference
  std::string relative_culprit;
  int64_t num_compared = 0;  ///< tensors
};

/// Members are set for what the reference file holds.
struct ParityReport {
  std::optional<ParityDifference> logits;
  std::optional<ParityDifference> loss;
  std::optional<ParityDifference> gradients;
};

/// What a model computes from a reference's batch.
struct ParityPass {
  /// Tensors under the names that a reference may use; empty if it has none of them.
  std::function<tensor::NamedTensors()> logits = [] { return tensor::NamedTensors{}; };
  /// With a graph.
  std::function<at::Tensor()> loss;
};

/// The pass of a model over a reference's batch; `model` outlives it. Block diffusion reads
/// input_ids, text_labels, prefix_lengths, response_lengths, canvas_ids, canvas_labels,
/// is_conditioned, block_size and text_weight, and returns encoder_logits (0 at padding),
/// first_logits (no row conditioned) and logits. Throws InputError when the reference lacks what it
/// needs.
ParityPass parity_pass(CausalLM& model, const tensor::NamedTensors& reference);

/// Runs the model, whose parameters have memory, in evaluation mode on the reference's input_ids
/// and labels (already shifted, -100 ignored; attention_mask optional), and compares with those of
/// the pass's logits, `loss` and `grad.<Hugging Face name>` that the reference holds. The loss is
/// the sum of cross-entropies divided by the number of labels. Leaves its gradients in the
/// parameters, and restores the model's mode. Throws InputError when the reference lacks input_ids
/// or the labels that a loss or gradient needs, names an unknown parameter, or has a wrong shape.
ParityReport run_parity(CausalLM& model, const tensor::NamedTensors& reference);

/// The label of positions that a reference's loss ignores.
constexpr int64_t kParityIgnoreIndex = -100;

/// The divisor of a reference's loss: its number of labels, at least 1.
double num_parity_labels(const at::Tensor& labels);

/// A tensor that a reference must hold; throws InputError when it does not.
const at::Tensor& reference_tensor(const tensor::NamedTensors& reference, const std::string& name);

/// The batch of a reference file. Throws InputError as run_parity does.
tensor::Batch parity_batch(const tensor::NamedTensors& reference);

/// The gradient of a Hugging Face tensor: a view of its parameter's gradient; zeros if there is
/// none.
at::Tensor hf_gradient(const CausalLM& model, const tensor::ParameterPart& part);

}  // namespace automodel::models
