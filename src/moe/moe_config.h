#pragma once

#include <cstdint>

#include "kernels/layers/activation.h"

namespace automodel::moe {

/// How a router turns logits into scores, and by which it chooses.
enum class ScoreFunction {
  kSoftmax,          ///< "softmax": over all experts, or over the chosen (softmax_before_topk)
  kSoftmaxWithBias,  ///< "softmax_with_bias": softmax; chooses by score + correction
  kSigmoid,          ///< "sigmoid"; chooses by score + correction
  kSigmoidWithBias,  ///< "sigmoid_with_bias": the same
  kSqrtSoftplus,  ///< "sqrtsoftplus": sqrt(log(1 + exp)); chooses by score + correction, no groups
};

/// The function between an expert's two products.
enum class ExpertActivation {
  kSwiglu,     ///< "swiglu": silu(gate) * up
  kSwigluOai,  ///< "swigluoai", "quick_geglu": GPT-OSS's clamped gate
  kGeglu,      ///< "geglu": gelu by tanh (gate) * up
  kRelu2,      ///< "relu2": relu(up)^2, no gate
};

/// A layer of experts. Field names and meaning are those of upstream's MoEConfig.
struct MoEConfig {
  int64_t dim = 0;            ///< hidden size
  int64_t moe_inter_dim = 0;  ///< of one routed expert
  /// Above 0: routed experts take and give this width, between a projection from dim and one back.
  int64_t moe_latent_size = 0;
  int64_t n_routed_experts = 0;
  int64_t n_shared_experts = 0;     ///< one MLP of n_shared_experts * the shared size; 0: none
  int64_t n_activated_experts = 0;  ///< per token
  int64_t n_expert_groups = 1;
  int64_t n_limited_groups = 1;  ///< groups a token may choose from
  /// A group's score is its best expert's, as of plain sigmoids; else the sum of its best two's.
  bool are_groups_by_best = false;

  ScoreFunction score_func = ScoreFunction::kSoftmax;
  bool softmax_before_topk = false;
  /// The greatest logits choose, not the scores made of them: sigmoids of large ones are equal.
  bool is_choice_by_logits = false;
  bool norm_topk_prob = false;   ///< chosen scores are divided by their sum
  double topk_norm_eps = 1e-20;  ///< that is added to the sum
  double route_scale = 1.0;
  bool are_inputs_weighted = false;  ///< weights multiply what experts read, not their results
  bool router_bias = false;
  bool is_router_float32 = false;    ///< logits are float32, whatever the model's dtype
  bool has_correction_bias = false;  ///< e_score_correction_bias, float32, changed by the load
  bool router_weight_uses_score_correction_bias = false;
  /// Ids of tokens for which a table of the router, tid2eid, names the experts; 0: scores choose.
  int64_t num_hashed_tokens = 0;
  bool train_gate = true;
  double gate_bias_update_factor = 0;
  double aux_loss_coeff = 0;
  bool fake_balanced_gate = false;  ///< gives all experts the same number of tokens

  ExpertActivation expert_activation = ExpertActivation::kSwiglu;
  bool expert_bias = false;
  bool are_experts_transposed = false;  ///< stored [E, in, out]
  bool are_gates_apart = false;         ///< gates [E, I, D] lie apart from up (Step 3.5)
  double activation_alpha = 1.702;
  double activation_limit = 7.0;
  kernels::GateBounds gate_bounds = {};         ///< of routed experts' gated activation
  kernels::GateBounds shared_gate_bounds = {};  ///< of the shared MLP's

  bool is_shared_averaged = false;  ///< the mean of the shared and the others' result, not the sum
  bool shared_expert_bias = false;  ///< biases of the shared MLP
  bool shared_expert_gate = false;  ///< the shared MLP's result is multiplied by a sigmoid gate
  int64_t shared_expert_inter_dim = 0;  ///< of one shared expert; 0: moe_inter_dim
  kernels::Activation shared_expert_activation = kernels::Activation::kSilu;

  int64_t shared_inner_dim() const {
    return n_shared_experts *
           (shared_expert_inter_dim > 0 ? shared_expert_inter_dim : moe_inter_dim);
  }
  /// Width of what routed experts take and give.
  int64_t expert_dim() const { return moe_latent_size > 0 ? moe_latent_size : dim; }
  bool is_gated() const { return expert_activation != ExpertActivation::kRelu2; }
  /// Rows of an expert's first product.
  int64_t expert_width() const { return (is_gated() ? 2 : 1) * moe_inter_dim; }
};

}  // namespace automodel::moe
