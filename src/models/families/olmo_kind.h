#pragma once

#include <cstdint>

#include "models/decoder/config_reader.h"
#include "models/decoder/decoder_config.h"
#include "moe/moe_config.h"

namespace automodel::models::decoder {

/// `clip_qkv`: the bound of |q|, |k| and |v|; 0 where it is absent.
double read_clip_qkv(ConfigReader& reader);

/// Defaults of a class's experts.
struct OlmoExperts {
  int64_t num_experts = 64;
  int64_t num_chosen = 8;
};

/// OLMoE's experts: softmax scores of all, whose weights are rescaled only if `norm_topk_prob`.
moe::MoEConfig read_olmo_experts(ConfigReader& reader, const DecoderConfig& config,
                                 const OlmoExperts& defaults);

}  // namespace automodel::models::decoder
