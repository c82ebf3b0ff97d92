#pragma once

#include "models/decoder/decoder_flops.h"
#include "models/decoder/hf_names.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

/// What Qwen 3 Next and Qwen 3.5 read alike: gated delta nets and, in every fourth layer or as
/// `layer_types` says, attention with gates, a quarter of whose dims rotates; norms times
/// 1 + weight. No experts yet.
DecoderConfig read_qwen_delta_kind(ConfigReader& reader, const CommonDefaults& defaults);

/// Their experts: softmax, then the best ones, and a shared one with a gate of its own.
moe::MoEConfig read_qwen_delta_experts(ConfigReader& reader, const DecoderConfig& config,
                                       const MoEKeys& keys);

inline constexpr HfNames kQwenDeltaNames = {.shared_experts = "shared_expert"};

/// Upstream's of Qwen 3.5, which Qwen 3 Next shares: attention halved for causality, a delta net by
/// its products and the state's.
double qwen_delta_flops(const DecoderConfig& config, double num_sequences, double length);

}  // namespace automodel::models::decoder
