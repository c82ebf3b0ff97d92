#include "models/families/exaone_kind.h"

#include <vector>

namespace automodel::models::decoder {

DecoderConfig read_exaone_kind(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.norm_eps = 1e-5});
  config.qk_norm = QkNorm::kPerHead;
  add_rope(reader, config, {});
  // Without a window all layers are full ones that rotate.
  if (reader.json().contains("sliding_window") && !reader.has("sliding_window")) return config;
  const bool is_listed = reader.has("layer_types");
  const int64_t period = is_listed ? 1 : reader.size("sliding_window_pattern", 4);
  const std::vector<bool> sliding =
      add_windows(reader, config, reader.size("sliding_window", 4096),
                  [&](int64_t layer) { return (layer + 1) % period != 0; });
  rotate_windows_alone(config, sliding);
  return config;
}

}  // namespace automodel::models::decoder
