#pragma once

#include <cstdint>
#include <vector>

#include "models/decoder/config_reader.h"
#include "models/decoder/decoder_config.h"
#include "models/families/gemma4_kind.h"
#include "nn/parallel_plan.h"
#include "tensor/key_map.h"

namespace automodel::models::diffusion_gemma {

/// DiffusionGemmaForBlockDiffusion. `text` has the sizes that all layers share, the head sizes of
/// sliding layers, and two rotary embeddings: for full and for sliding layers.
struct DiffusionGemmaConfig {
  decoder::DecoderConfig text;
  /// Full layers have no v_proj: their values are the keys, normed without weight.
  std::vector<decoder::Gemma4Layer> layers;
  int64_t window = 0;         ///< of sliding layers
  int64_t canvas_length = 0;  ///< tokens that are denoised together
  bool has_self_conditioning = true;
  bool is_router_frozen = true;
};

/// Reads a config.json: `text_config` with global_head_dim and num_global_key_value_heads, or with
/// transformers' per_layer_config; canvas_length; and self_conditioning and freeze_router, which
/// only recipes set (transformers does not know them).
DiffusionGemmaConfig read_diffusion_gemma(decoder::ConfigReader& reader);

/// The text part of DiffusionGemma's configuration, for callers that need sizes only.
decoder::DecoderConfig read_config(decoder::ConfigReader& reader);

nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& text);
tensor::KeyMap key_map(const DiffusionGemmaConfig& config);

}  // namespace automodel::models::diffusion_gemma
