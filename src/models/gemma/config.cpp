#include "models/gemma/config.h"

#include <cmath>

namespace automodel::models::gemma {

decoder::DecoderConfig read_config(decoder::ConfigReader& reader) {
  decoder::DecoderConfig config = decoder::read_common(reader, {.head_dim = 256,
                                                                .max_positions = 8192,
                                                                .is_head_tied = true,
                                                                .padding_idx = 0,
                                                                .activation = "gelu_pytorch_tanh"});
  // Early config.json files say "gelu" and mean the tanh approximation.
  if (config.activation == kernels::Activation::kGelu)
    config.activation = kernels::Activation::kGeluTanh;
  config.norm = decoder::NormKind::kRmsPlusOne;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.is_embedding_scale_rounded = true;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  decoder::add_rope(reader, config, {});
  return config;
}

}  // namespace automodel::models::gemma
