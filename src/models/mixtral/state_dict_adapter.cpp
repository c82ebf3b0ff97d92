#include "models/decoder/hf_names.h"
#include "models/mixtral/config.h"

namespace automodel::models::mixtral {

tensor::KeyMap key_map(const decoder::DecoderConfig& config) {
  return decoder::make_key_map(
      config,
      decoder::HfNames{
          .mlp = "block_sparse_moe", .expert_gate = "w1", .expert_up = "w3", .expert_down = "w2"});
}

}  // namespace automodel::models::mixtral
