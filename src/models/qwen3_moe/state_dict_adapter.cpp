#include "models/decoder/hf_names.h"
#include "models/qwen3_moe/config.h"

namespace automodel::models::qwen3_moe {

tensor::KeyMap key_map(const decoder::DecoderConfig& config) {
  return decoder::make_key_map(config, decoder::HfNames{});
}

}  // namespace automodel::models::qwen3_moe
