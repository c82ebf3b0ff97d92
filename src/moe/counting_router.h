#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <string>
#include <string_view>

#include "moe/moe_config.h"

namespace automodel::moe {

/// Each token's experts, best first where the family sorts them.
struct Routing {
  at::Tensor expert_ids;  ///< [T, k] int64; -1: none
  at::Tensor weights;     ///< [T, k], dtype of x; differentiable
};

/// The parameter of a router that is added to the scores by which experts are chosen.
inline constexpr std::string_view kCorrectionName = "e_score_correction_bias";

/// Sums a float32 tensor in place over the ranks that have parts of the same sequences, all of
/// which call it. Empty: there are no such ranks.
using SumOverSequence = std::function<void(at::Tensor)>;

/// What all routers do besides choosing: they count the tokens of each expert, may add the aux loss
/// to the gradient of their weights, and give every expert the same number of tokens on request.
class CountingRouter : public torch::nn::Module {
 public:
  /// Sets the factor of the aux loss's coefficient: context ranks / micro-batches of a step (the
  /// loss is a mean over them). Initially 0: no aux loss.
  void set_aux_loss_scale(double scale) { aux_loss_scale_ = scale; }
  /// Makes the aux loss use whole sequences, parts of which are on several ranks.
  void set_sum_over_sequence(SumOverSequence sum) { sum_over_sequence_ = std::move(sum); }
  /// Makes every expert get the same number of tokens from now on (upstream's FakeBalancedGate).
  void use_fake_balanced_gate() { config_.fake_balanced_gate = true; }
  /// Keeps the correction of the scores (kCorrectionName) as it is in every step.
  void keep_correction() { keeps_correction_ = true; }
  bool keeps_correction() const { return keeps_correction_; }

  /// Tokens of this rank per expert in training forwards since the last call, float32 [E]; a
  /// forward that is repeated in backward counts once.
  at::Tensor take_load();
  /// Mean of these forwards' aux losses (without coefficient), float64 []; 0 if there was none.
  at::Tensor take_aux_loss();

  const MoEConfig& config() const { return config_; }
  const std::string& layer_name() const { return name_; }

 protected:
  /// `name` appears in errors: "layer 3".
  CountingRouter(const MoEConfig& config, std::string name)
      : config_(config), name_(std::move(name)) {}

  /// Experts 0, 1, 2… in turn with equal weights, for tokens whose scores [T, E] give the number
  /// and the dtype.
  Routing balanced_routing(const at::Tensor& scores) const;

  /// What forward returns: the routing in `dtype`. In training, tokens at is_padding [T]
  /// (undefined: none) lose their experts, the others are counted, and the aux loss of `shares` [T,
  /// E], each token's scores, is added where it has a scale.
  Routing counted(Routing routing, const std::function<at::Tensor()>& shares,
                  const at::Tensor& is_padding, at::ScalarType dtype);

  /// On the CPU, throws UserError with the exit code of non-finite losses unless all of `values`,
  /// "logits" or "scores" in the text, are finite.
  void check_finite(const at::Tensor& values, const char* what) const;

 private:
  at::Tensor count(const at::Tensor& ids);
  at::Tensor with_aux_loss(const at::Tensor& shares, const at::Tensor& load,
                           const at::Tensor& weights, const at::Tensor& is_padding);

  MoEConfig config_;
  std::string name_;
  bool keeps_correction_ = false;
  double aux_loss_scale_ = 0;
  SumOverSequence sum_over_sequence_;
  at::Tensor load_;      // float32 [E], on the device of the ids
  at::Tensor aux_loss_;  // sum of the aux losses, float32, on the same device
  int64_t num_aux_losses_ = 0;
};

/// sum_i f_i P_i with f_i = load_i E / (k T) and P_i the mean score of expert i over T tokens.
/// scores [T, E] (`is_counted` [T] bool or undefined is false for rows to leave out), load [E].
/// With `sum`, T, load and scores are summed over all ranks first. Differentiable in this rank's
/// scores. Upstream's Gate._compute_aux_loss.
at::Tensor aux_loss(const at::Tensor& scores, const at::Tensor& load, const at::Tensor& is_counted,
                    int64_t num_chosen, const SumOverSequence& sum = {});

}  // namespace automodel::moe
