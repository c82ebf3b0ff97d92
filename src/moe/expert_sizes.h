#pragma once

#include <cstdint>

#include "moe/moe_config.h"

namespace automodel::moe {

/// The number of tokens of one micro-batch for a layer of experts on one rank.
struct ExpertTokens {
  int64_t num_tokens = 0;
  int64_t num_expert_ranks = 1;      ///< that hold different experts
  int64_t num_same_token_ranks = 1;  ///< of these, ranks with the same tokens; each takes a part
  int64_t element_size = 4;
};

/// The share of tokens that have an expert on a given one of `num_ranks` ranks, if every choice of
/// experts (of groups first, where limited) is equally likely.
double share_of_tokens(const MoEConfig& config, int64_t num_ranks);

/// Bytes of a layer of experts on one rank, shared experts included: what router, dispatcher and
/// kernels keep and need besides the layer's input. All experts count as equally often chosen, so a
/// rank has the same number of choices wherever experts are.
class ExpertSizes final {
 public:
  ExpertSizes(const MoEConfig& config, const ExpertTokens& tokens);

  int64_t kept() const;              ///< from forward to backward
  int64_t forward_working() const;   ///< most at once, beside all that is kept
  int64_t backward_working() const;  ///< in backward, gradients of weights included
  int64_t sent_forward() const;      ///< to all ranks, this one included; 0 with one rank
  int64_t sent_backward() const;

 private:
  bool is_split() const { return tokens_.num_expert_ranks > 1; }
  int64_t rows(int64_t dim) const { return num_rows_ * dim * tokens_.element_size; }
  int64_t weighted_inputs() const;
  int64_t choices(int64_t dim) const { return num_choices_ * dim * tokens_.element_size; }
  /// Bytes of the choices that are computed at once, `dim` numbers each.
  int64_t some_choices(int64_t dim) const;

  MoEConfig config_;
  ExpertTokens tokens_;
  int64_t num_own_ = 0;      ///< tokens of which this rank sends copies
  int64_t num_rows_ = 0;     ///< rows that reach this rank's experts; as many are sent
  int64_t num_choices_ = 0;  ///< choices of this rank's experts
};

}  // namespace automodel::moe
