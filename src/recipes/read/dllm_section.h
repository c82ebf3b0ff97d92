#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "core/field.h"
#include "datasets/samples/most_tokens.h"

namespace automodel::recipes {

/// The recipes that train by diffusion.
inline constexpr const char* kBlockDiffusionRecipe = "DiffusionGemmaSFTRecipe";
inline constexpr const char* kMaskedDiffusionRecipe = "DiffusionLMSFTRecipe";

/// `dllm`: how a diffusion language model is trained. It has the keys of all of upstream's modes;
/// this version has block_diffusion, of kBlockDiffusionRecipe, and mdlm, scdd and idlm, of
/// kMaskedDiffusionRecipe.
struct DllmSection {
  std::string mode = "mdlm";
  double eps = 1e-3;
  std::optional<int64_t> block_size;
  std::optional<int64_t> pad_block_size;
  std::optional<int64_t> pad_seq_len_divisible;
  bool supervise_padding = false;
  std::optional<int64_t> vocab_size;
  double encoder_loss_weight = 1.0;
  double self_conditioning_p = 0.5;
  std::optional<int64_t> mask_token_id;
  std::optional<double> half_life_ratio = 0.25;
  double ar_loss_alpha = 1.0;
  int64_t block_length = 1;
  double clean_loss_weight = 0.2;
  bool auto_balance_clean_loss = false;
  int64_t num_timesteps = 1000;
  double uniform_ratio = 0.1;
  double schedule_shape = 1.0;
  double schedule_peak = 0.5;
  std::optional<int64_t> chunk_size = 1024;

  bool is_block_diffusion() const { return mode == "block_diffusion"; }

  static constexpr auto fields() {
    using S = DllmSection;
    constexpr const char* kHybrid = "mode hybrid is not in this version";
    constexpr const char* kWhole =
        "the logits of a micro-batch's supervised tokens are computed at once";
    return std::tuple{
        field("mode", &S::mode, "mdlm, scdd, idlm; of DiffusionGemma block_diffusion"),
        field("eps", &S::eps, "least share of supervised tokens that are hidden or replaced")
            .at_least(0)
            .at_most(1),
        field("block_size", &S::block_size,
              "tokens of a canvas that are denoised together; absent: canvas_length")
            .above(0)
            .at_most(datasets::kMostTokens),
        field("pad_block_size", &S::pad_block_size,
              "fill samples, or responses, with end-of-sequence tokens to a multiple of it")
            .above(0)
            .at_most(datasets::kMostTokens),
        field("pad_seq_len_divisible", &S::pad_seq_len_divisible,
              "pad batches to a multiple of it and of pad_block_size")
            .above(0)
            .at_most(datasets::kMostTokens),
        field("supervise_padding", &S::supervise_padding, "padding counts in the loss"),
        field("vocab_size", &S::vocab_size,
              "of modes block_diffusion and scdd: replacements are drawn below it")
            .above(0),
        field("encoder_loss_weight", &S::encoder_loss_weight,
              "weight of the next-token loss of the whole text")
            .at_least(0),
        field("self_conditioning_p", &S::self_conditioning_p,
              "share of examples that are conditioned on a first pass")
            .at_least(0)
            .at_most(1),
        field("mask_token_id", &S::mask_token_id,
              "the token that hides others; not of block_diffusion")
            .at_least(0),
        field("half_life_ratio", &S::half_life_ratio, "of mode hybrid").without_effect(kHybrid),
        field("ar_loss_alpha", &S::ar_loss_alpha, "of mode hybrid").without_effect(kHybrid),
        field("block_length", &S::block_length,
              "of mode idlm: hidden tokens that see each other, from left to right")
            .above(0),
        field("clean_loss_weight", &S::clean_loss_weight,
              "of mode idlm: weight of the loss of the text without hidden tokens")
            .at_least(0),
        field("auto_balance_clean_loss", &S::auto_balance_clean_loss,
              "of mode idlm: that weight is the ratio of both losses instead"),
        field("num_timesteps", &S::num_timesteps, "of mode scdd: steps of the noise").at_least(2),
        field("uniform_ratio", &S::uniform_ratio,
              "of mode scdd: most exchanged tokens for each one that is kept; 0 is mode mdlm")
            .at_least(0),
        field("schedule_shape", &S::schedule_shape,
              "of mode scdd: how much exchanges crowd around schedule_peak")
            .at_least(0),
        field("schedule_peak", &S::schedule_peak,
              "of mode scdd: the time at which most tokens are exchanged")
            .above(0),
        field("chunk_size", &S::chunk_size, "of mode scdd").without_effect(kWhole)};
  }
};

}  // namespace automodel::recipes
