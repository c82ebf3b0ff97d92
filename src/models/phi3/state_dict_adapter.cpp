#include "models/decoder/hf_names.h"
#include "models/phi3/config.h"

namespace automodel::models::phi3 {

tensor::KeyMap key_map(const decoder::DecoderConfig& config) {
  decoder::HfNames names;
  names.qkv = "qkv_proj";
  names.gate_up = "gate_up_proj";
  return decoder::make_key_map(config, names);
}

}  // namespace automodel::models::phi3
