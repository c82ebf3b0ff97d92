#include "models/decoder/hf_names.h"
#include "models/glm4_moe/config.h"

namespace automodel::models::glm4_moe {

tensor::KeyMap key_map(const decoder::DecoderConfig& config) {
  return decoder::make_key_map(config, decoder::HfNames{});
}

}  // namespace automodel::models::glm4_moe
