#include "models/gemma2/config.h"

#include <cmath>

namespace automodel::models::gemma2 {

decoder::DecoderConfig read_config(decoder::ConfigReader& reader) {
  decoder::DecoderConfig config =
      decoder::read_common(reader, {.head_dim = 256,
                                    .max_positions = 8192,
                                    .is_head_tied = true,
                                    .padding_idx = 0,
                                    .activation_key = "hidden_activation",
                                    .activation = "gelu_pytorch_tanh"});
  config.norm = decoder::NormKind::kRmsPlusOne;
  config.norm_placement = decoder::NormPlacement::kSandwich;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.is_embedding_scale_rounded = true;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  // A cap that is there with null is off; an absent one has the class's default.
  const auto cap = [&](const char* key, double absent) {
    return reader.number(key, reader.json().contains(key) ? 0 : absent);
  };
  config.attention_softcap = cap("attn_logit_softcapping", 50.0);
  config.final_softcap = cap("final_logit_softcapping", 30.0);
  const double scale = 1.0 / std::sqrt(reader.number("query_pre_attn_scalar", 256));
  for (decoder::LayerOptions& layer : config.layers) layer.attention_scale = scale;
  decoder::add_windows(reader, config, reader.size("sliding_window", 4096),
                       [](int64_t layer) { return layer % 2 == 0; });
  decoder::add_rope(reader, config, {});
  return config;
}

}  // namespace automodel::models::gemma2
