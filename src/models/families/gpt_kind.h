#pragma once

#include <cstdint>
#include <string_view>

#include "models/decoder/config_reader.h"
#include "models/decoder/decoder_config.h"
#include "models/decoder/hf_names.h"

namespace automodel::models::decoder {

/// Keys and defaults in which GPT-2 and the families after it differ.
struct GptDefaults {
  std::string_view hidden_size = "n_embd";
  std::string_view intermediate_size = "n_inner";
  std::string_view num_layers = "n_layer";
  std::string_view num_heads = "n_head";
  std::string_view positions = "n_positions";
  std::string_view embedding_dropout = "embd_pdrop";
  std::string_view residual_dropout = "resid_pdrop";
  std::string_view attention_dropout = "attn_pdrop";
  int64_t max_positions = 1024;
  double dropout = 0;  ///< where a key of dropout is absent
  bool is_head_tied = true;
  std::string_view activation = "gelu_new";
};

/// Reads what these families have in common: sizes, LayerNorms, an MLP without a gate (of four
/// hidden sizes unless it is stated), dropout. Biases and positions are the caller's.
DecoderConfig read_gpt_kind(ConfigReader& reader, const GptDefaults& defaults);

/// GPT-2's names of tensors.
inline constexpr HfNames kGpt2Names{.embedding = "transformer.wte",
                                    .positions = "transformer.wpe",
                                    .layers = "transformer.h",
                                    .final_norm = "transformer.ln_f",
                                    .attention = "attn",
                                    .qkv = "c_attn",
                                    .output = "c_proj",
                                    .up = "c_fc",
                                    .down = "c_proj",
                                    .attention_pre_norm = "ln_1",
                                    .mlp_pre_norm = "ln_2"};

}  // namespace automodel::models::decoder
