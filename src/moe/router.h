#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <string>

#include "moe/moe_config.h"
#include "nn/product_dtype.h"

namespace automodel::moe {

/// Each token's experts, best first where the family sorts them.
struct Routing {
  at::Tensor expert_ids;  ///< [T, k] int64; -1: none
  at::Tensor weights;     ///< [T, k], dtype of x; differentiable
};

/// Adds a float32 tensor up, in place, over the ranks that have parts of the same sequences; all of
/// them call it. Empty: no such ranks.
using SumOverSequence = std::function<void(at::Tensor)>;

/// Chooses experts: upstream's Gate. Parameters: weight [E, D], bias [E], and
/// e_score_correction_bias [E] float32, which no gradient reaches: it is moved by the load after
/// each step (load_balance.h).
class Router final : public torch::nn::Module, public nn::MultiplyingModule {
 public:
  /// `name` stands in errors: "layer 3".
  Router(const MoEConfig& config, std::string name, at::ScalarType dtype);

  /// x [T, D]; is_padding [T] bool or undefined: tokens that choose nothing in training and are
  /// not counted.
  /// In training the aux loss acts on the gradient of the weights, when it has a scale.
  /// UserError with the exit code of non-finite losses when logits are not finite.
  Routing forward(const at::Tensor& x, const at::Tensor& is_padding);

  /// The aux loss's coefficient is multiplied by this: context ranks / micro-batches of a step
  /// (the loss is a mean over them). 0, as at first: no aux loss.
  void set_aux_loss_scale(double scale) { aux_loss_scale_ = scale; }
  /// Has the aux loss take whole sequences, whose parts lie on several ranks.
  void set_sum_over_sequence(SumOverSequence sum) { sum_over_sequence_ = std::move(sum); }
  /// Gives every expert equally many tokens from now on (upstream's FakeBalancedGate).
  void use_fake_balanced_gate() { config_.fake_balanced_gate = true; }

  /// Tokens of this rank that each expert got in training forwards since the last call, float32
  /// [E]; forwards that are repeated in the backward pass count once.
  at::Tensor take_load();
  /// Mean of the aux losses (without coefficient) of those forwards; 0 when there was none.
  double take_aux_loss();

  const MoEConfig& config() const { return config_; }
  const std::string& layer_name() const { return name_; }

  nn::ProductDtype& product_dtype() override { return product_dtype_; }

 private:
  at::Tensor logits(const at::Tensor& x) const;
  at::Tensor all_scores(const at::Tensor& logits) const;
  at::Tensor choose(const at::Tensor& scores, const at::Tensor& logits) const;
  bool weighs_corrected() const;
  at::Tensor chosen_weights(const at::Tensor& scores, const at::Tensor& logits,
                            const at::Tensor& ids) const;
  at::Tensor balanced(const at::Tensor& scores, const at::Tensor& load, const at::Tensor& weights,
                      const at::Tensor& is_padding);
  at::Tensor count(const at::Tensor& ids);

  MoEConfig config_;
  std::string name_;
  double aux_loss_scale_ = 0;
  SumOverSequence sum_over_sequence_;
  at::Tensor weight_;
  at::Tensor bias_;
  at::Tensor e_score_correction_bias_;
  at::Tensor load_;      // float32 [E], where the ids are
  at::Tensor aux_loss_;  // the sum of them, float32, where the load is
  int64_t num_aux_losses_ = 0;
  nn::ProductDtype product_dtype_;
};

/// sum_i f_i P_i with f_i = load_i E / (k T) and P_i the mean score of expert i over T tokens.
/// scores [T, E] (padding rows are left out by `is_counted` [T] bool or undefined), load [E].
/// With `sum` T and both sums are over all ranks' tokens. Differentiable in this rank's scores.
/// Upstream's Gate._compute_aux_loss.
at::Tensor aux_loss(const at::Tensor& scores, const at::Tensor& load, const at::Tensor& is_counted,
                    int64_t num_chosen, const SumOverSequence& sum = {});

}  // namespace automodel::moe
