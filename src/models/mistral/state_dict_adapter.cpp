#include "models/decoder/hf_names.h"
#include "models/mistral/config.h"

namespace automodel::models::mistral {

tensor::KeyMap key_map(const decoder::DecoderConfig& config) {
  return decoder::make_key_map(config, decoder::HfNames{});
}

}  // namespace automodel::models::mistral
