#include "models/decoder/hf_names.h"
#include "models/deepseek_v3/config.h"

namespace automodel::models::deepseek_v3 {

tensor::KeyMap key_map(const decoder::DecoderConfig& config) {
  return decoder::make_key_map(config, decoder::HfNames{});
}

}  // namespace automodel::models::deepseek_v3
