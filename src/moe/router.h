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

/// Sums a float32 tensor in place over the ranks that have parts of the same sequences, all of
/// which call it. Empty: there are no such ranks.
using SumOverSequence = std::function<void(at::Tensor)>;

/// Chooses experts: upstream's Gate. Parameters: weight [E, D], bias [E],
/// e_score_correction_bias [E] float32, which gets no gradient (load_balance.h changes it after
/// each step), and tid2eid [V, k] int64, the experts of every token id where the config has a table
/// of them (DeepSeek V4); scores then weigh but do not choose.
class Router final : public torch::nn::Module, public nn::MultiplyingModule {
 public:
  /// `name` appears in errors: "layer 3".
  Router(const MoEConfig& config, std::string name, at::ScalarType dtype);

  /// x [T, D]; is_padding [T] bool or undefined: in training these tokens choose no expert and are
  /// not counted. In training the aux loss, if it has a scale, adds to the weights' gradient. On
  /// the CPU, logits that are not finite throw UserError with the exit code of non-finite losses.
  /// token_ids [T] are needed with a table of experts, which throws InputError for one outside
  /// the layer's.
  Routing forward(const at::Tensor& x, const at::Tensor& is_padding,
                  const at::Tensor& token_ids = {});

  /// Sets the factor of the aux loss's coefficient: context ranks / micro-batches of a step (the
  /// loss is a mean over them). Initially 0: no aux loss.
  void set_aux_loss_scale(double scale) { aux_loss_scale_ = scale; }
  /// Makes the aux loss use whole sequences, parts of which are on several ranks.
  void set_sum_over_sequence(SumOverSequence sum) { sum_over_sequence_ = std::move(sum); }
  /// Makes every expert get the same number of tokens from now on (upstream's FakeBalancedGate).
  void use_fake_balanced_gate() { config_.fake_balanced_gate = true; }

  /// Tokens of this rank per expert in training forwards since the last call, float32 [E]; a
  /// forward that is repeated in backward counts once.
  at::Tensor take_load();
  /// Mean of these forwards' aux losses (without coefficient); 0 if there was none.
  double take_aux_loss();

  const MoEConfig& config() const { return config_; }
  const std::string& layer_name() const { return name_; }

  nn::ProductDtype& product_dtype() override { return product_dtype_; }

 private:
  at::Tensor logits(const at::Tensor& x) const;
  at::Tensor all_scores(const at::Tensor& logits) const;
  at::Tensor choose(const at::Tensor& scores, const at::Tensor& logits,
                    const at::Tensor& token_ids) const;
  at::Tensor looked_up(const at::Tensor& token_ids) const;
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
  at::Tensor tid2eid_;
  at::Tensor load_;      // float32 [E], on the device of the ids
  at::Tensor aux_loss_;  // their sum, float32, on the same device
  int64_t num_aux_losses_ = 0;
  nn::ProductDtype product_dtype_;
};

/// sum_i f_i P_i with f_i = load_i E / (k T) and P_i the mean score of expert i over T tokens.
/// scores [T, E] (`is_counted` [T] bool or undefined is false for rows to leave out), load [E].
/// With `sum`, T, load and scores are summed over all ranks first. Differentiable in this rank's
/// scores. Upstream's Gate._compute_aux_loss.
at::Tensor aux_loss(const at::Tensor& scores, const at::Tensor& load, const at::Tensor& is_counted,
                    int64_t num_chosen, const SumOverSequence& sum = {});

}  // namespace automodel::moe
