#include "models/decoder/hf_names.h"
#include "models/gpt2/config.h"

namespace automodel::models::gpt2 {

tensor::KeyMap key_map(const decoder::DecoderConfig& config) {
  decoder::HfNames names;
  names.embedding = "transformer.wte";
  names.positions = "transformer.wpe";
  names.layers = "transformer.h";
  names.final_norm = "transformer.ln_f";
  names.attention = "attn";
  names.qkv = "c_attn";
  names.output = "c_proj";
  names.up = "c_fc";
  names.down = "c_proj";
  names.attention_pre_norm = "ln_1";
  names.mlp_pre_norm = "ln_2";
  return decoder::make_key_map(config, names);
}

}  // namespace automodel::models::gpt2
