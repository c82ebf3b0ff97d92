#include "models/mistral/config.h"

#include <vector>

namespace automodel::models::mistral {

decoder::DecoderConfig read_config(decoder::ConfigReader& reader) {
  decoder::DecoderConfig config = decoder::read_common(reader, {.max_positions = 131072});
  // The class's default of 4096 counts only where the key is absent; null means no window.
  const int64_t absent = reader.json().contains("sliding_window") ? 0 : 4096;
  const int64_t window = reader.size("sliding_window", absent);
  decoder::set_windows(config, window, std::vector<bool>(config.layers.size(), true));
  decoder::add_rope(reader, config, {});
  return config;
}

}  // namespace automodel::models::mistral
