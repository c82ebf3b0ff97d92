#pragma once

#include <cstdint>
#include <memory>

#include "models/masked_denoiser.h"
#include "nn/attention_core.h"
#include "recipes/passes/diffusion_objective.h"

namespace automodel::recipes {

/// How a model that reads from left to right learns to name hidden tokens.
struct IntrospectiveDiffusionOptions {
  int64_t mask_token_id = 0;
  double clean_loss_weight = 0.2;    ///< of the text without hidden tokens
  bool balances_clean_loss = false;  ///< the weight is the ratio of both losses instead
  int64_t ignore_index = -100;
};

/// Mode idlm (I-DLM, arXiv:2604.11035). A batch is its texts, and behind each the same text with
/// all supervised tokens hidden; each position predicts the next token, in both. The loss is that
/// of the hidden copies plus clean_loss_weight times that of the texts. The model's attention must
/// be make_paired_attention_core().
std::unique_ptr<DiffusionObjective> make_introspective_diffusion(
    models::MaskedDenoiser& model, const IntrospectiveDiffusionOptions& options);

/// Attention of sequences that are a text and its hidden copy, of L positions each. The text is
/// read from left to right. A position of the copy sees the text before its own block of
/// `block_length` positions, and of the copy its block up to itself. Padding is at the ends of
/// both. Not for windows, caps and dropout.
std::shared_ptr<nn::AttentionCore> make_paired_attention_core(int64_t block_length);

}  // namespace automodel::recipes
