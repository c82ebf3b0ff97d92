#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

#include "core/field.h"

namespace automodel::recipes {

/// `dllm`: how a diffusion language model is trained. It has the keys of all of upstream's modes;
/// this version has block_diffusion only.
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
  // Only other modes read the keys below.
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
  int64_t chunk_size = 1024;

  static constexpr auto fields() {
    using S = DllmSection;
    constexpr const char* kOther = "block_diffusion does not read it";
    return std::tuple{
        field("mode", &S::mode, "block_diffusion"),
        field("eps", &S::eps, "least share of a response's tokens that are replaced")
            .at_least(0)
            .at_most(1),
        field("block_size", &S::block_size,
              "tokens that are denoised together; absent: the model's canvas_length")
            .above(0),
        field("pad_block_size", &S::pad_block_size,
              "fill responses with end-of-sequence tokens to a multiple of it")
            .above(0),
        field("pad_seq_len_divisible", &S::pad_seq_len_divisible,
              "pad batches to a multiple of it and of pad_block_size")
            .above(0),
        field("supervise_padding", &S::supervise_padding, "padding counts as response"),
        field("vocab_size", &S::vocab_size, "replacements are drawn below it").above(0),
        field("encoder_loss_weight", &S::encoder_loss_weight,
              "weight of the next-token loss of the whole text")
            .at_least(0),
        field("self_conditioning_p", &S::self_conditioning_p,
              "share of examples that are conditioned on a first pass")
            .at_least(0)
            .at_most(1),
        field("mask_token_id", &S::mask_token_id, "of masking modes").without_effect(kOther),
        field("half_life_ratio", &S::half_life_ratio, "of masking modes").without_effect(kOther),
        field("ar_loss_alpha", &S::ar_loss_alpha, "of mode hybrid").without_effect(kOther),
        field("block_length", &S::block_length, "of mode idlm").without_effect(kOther),
        field("clean_loss_weight", &S::clean_loss_weight, "of mode idlm").without_effect(kOther),
        field("auto_balance_clean_loss", &S::auto_balance_clean_loss, "of mode idlm")
            .without_effect(kOther),
        field("num_timesteps", &S::num_timesteps, "of mode scdd").without_effect(kOther),
        field("uniform_ratio", &S::uniform_ratio, "of mode scdd").without_effect(kOther),
        field("schedule_shape", &S::schedule_shape, "of mode scdd").without_effect(kOther),
        field("schedule_peak", &S::schedule_peak, "of mode scdd").without_effect(kOther),
        field("chunk_size", &S::chunk_size, "of mode scdd").without_effect(kOther)};
  }
};

}  // namespace automodel::recipes
