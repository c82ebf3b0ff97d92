#include "models/decoder/hf_names.h"
#include "models/gemma3/config.h"

namespace automodel::models::gemma3 {

tensor::KeyMap key_map(const decoder::DecoderConfig& config) {
  decoder::HfNames names;
  names.attention_post_norm = "post_attention_layernorm";
  names.mlp_pre_norm = "pre_feedforward_layernorm";
  names.mlp_post_norm = "post_feedforward_layernorm";
  return decoder::make_key_map(config, names);
}

}  // namespace automodel::models::gemma3
