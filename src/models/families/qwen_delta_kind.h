#pragma once

#include "models/decoder/decoder_flops.h"
#include "models/decoder/hf_names.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

/// Reads what Qwen 3 Next and Qwen 3.5 have in common: gated delta nets and, in every fourth layer
/// or as `layer_types` lists, attention with gates and a quarter of its dims rotated; norms times 1
/// + weight. Does not read experts.
DecoderConfig read_qwen_delta_kind(ConfigReader& reader, const CommonDefaults& defaults);

/// Reads their experts: softmax, then the best ones, and a shared expert with its own gate.
moe::MoEConfig read_qwen_delta_experts(ConfigReader& reader, const DecoderConfig& config,
                                       const MoEKeys& keys);

inline constexpr HfNames kQwenDeltaNames = {.shared_experts = "shared_expert"};

/// Upstream's formula for Qwen 3.5, also used for Qwen 3 Next: attention halved for causality; a
/// delta net counts its products and its state's.
double qwen_delta_flops(const DecoderConfig& config, double num_sequences, double length);

}  // namespace automodel::models::decoder
