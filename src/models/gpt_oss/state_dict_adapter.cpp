#include "models/decoder/hf_names.h"
#include "models/gpt_oss/config.h"

namespace automodel::models::gpt_oss {

tensor::KeyMap key_map(const decoder::DecoderConfig& config) {
  return decoder::make_key_map(config,
                               decoder::HfNames{.router = "router", .are_experts_stacked = true});
}

}  // namespace automodel::models::gpt_oss
