#include "models/decoder/hf_names.h"
#include "models/llama/config.h"

namespace automodel::models::llama {

tensor::KeyMap key_map(const decoder::DecoderConfig& config) {
  return decoder::make_key_map(config, decoder::HfNames{});
}

}  // namespace automodel::models::llama
