#include <vector>

#include "models/decoder/family.h"
#include "models/families/cohere_kind.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_cohere2(ConfigReader& reader) {
  DecoderConfig config = read_cohere_kind(reader, 10000.0);
  const int64_t pattern = reader.size("sliding_window_pattern", 4);
  const std::vector<bool> slides =
      add_windows(reader, config, reader.size("sliding_window", 4096),
                  [&](int64_t layer) { return (layer + 1) % pattern != 0; });
  rotate_windows_alone(config, slides);
  return config;
}

}  // namespace

/// Command R7B and Command A: Command R with a window in layers that rotate, and neither in every
/// fourth.
extern const Family kCohere2{
    .architecture = "Cohere2ForCausalLM",
    .model_type = "cohere2",
    .config_class = "Cohere2Config",
    .layer_class = "Cohere2DecoderLayer",
    .read_config = read_cohere2,
    .names = kCohereNames,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
