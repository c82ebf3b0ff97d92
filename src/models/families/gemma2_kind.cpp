#include "models/families/gemma2_kind.h"

#include <cmath>

#include "core/text.h"

namespace automodel::models::decoder {

DecoderConfig read_gemma2_kind(ConfigReader& reader, int64_t max_positions) {
  DecoderConfig config = read_common(reader, {.head_dim = 256,
                                              .max_positions = max_positions,
                                              .is_head_tied = true,
                                              .padding_idx = 0,
                                              .activation_key = "hidden_activation",
                                              .activation = "gelu_pytorch_tanh"});
  config.norm = NormKind::kRmsPlusOne;
  config.norm_placement = NormPlacement::kSandwich;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.is_embedding_scale_rounded = true;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  double divisor = reader.number("query_pre_attn_scalar", 256);
  if (divisor <= 0) {
    reader.problem(cat("query_pre_attn_scalar is ", divisor, "; it must be above 0"));
    divisor = 256;
  }
  const double scale = 1.0 / std::sqrt(divisor);
  for (LayerOptions& layer : config.layers) layer.attention_scale = scale;
  return config;
}

}  // namespace automodel::models::decoder
