#pragma once

#include <string>

#include "moe/counting_router.h"
#include "nn/product_dtype.h"

namespace automodel::moe {

/// Chooses experts: upstream's Gate. Parameters: weight [E, D], bias [E],
/// e_score_correction_bias [E] float32, which gets no gradient (load_balance.h changes it after
/// each step), and tid2eid [V, k] int64, the experts of every token id where the config has a table
/// of them (DeepSeek V4); scores then weigh but do not choose.
class Router final : public CountingRouter, public nn::MultiplyingModule {
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

  nn::ProductDtype& product_dtype() override { return product_dtype_; }

 private:
  at::Tensor logits(const at::Tensor& x) const;
  at::Tensor all_scores(const at::Tensor& logits) const;
  at::Tensor choose(const at::Tensor& scores, const at::Tensor& logits,
                    const at::Tensor& token_ids) const;
  at::Tensor looked_up(const at::Tensor& token_ids) const;
  bool weighs_by_logits() const;
  bool weighs_corrected() const;
  at::Tensor chosen_weights(const at::Tensor& scores, const at::Tensor& logits,
                            const at::Tensor& ids) const;
  at::Tensor shares(const at::Tensor& scores) const;

  at::Tensor weight_;
  at::Tensor bias_;
  at::Tensor e_score_correction_bias_;
  at::Tensor tid2eid_;
  nn::ProductDtype product_dtype_;
};

}  // namespace automodel::moe
