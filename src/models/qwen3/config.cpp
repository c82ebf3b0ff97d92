#include "models/qwen3/config.h"

namespace automodel::models::qwen3 {

decoder::DecoderConfig read_config(decoder::ConfigReader& reader) {
  decoder::DecoderConfig config =
      decoder::read_common(reader, {.head_dim = 128, .max_positions = 32768});
  config.qk_norm = decoder::QkNorm::kPerHead;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  const int64_t first = static_cast<int64_t>(reader.number("max_window_layers", 28));
  const int64_t window =
      reader.flag("use_sliding_window", false) ? reader.size("sliding_window", 4096) : 0;
  decoder::add_windows(reader, config, window, [&](int64_t layer) { return layer >= first; });
  decoder::add_rope(reader, config, {});
  return config;
}

}  // namespace automodel::models::qwen3
