#include <cmath>

#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_gemma(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.head_dim = 256,
                                              .max_positions = 8192,
                                              .is_head_tied = true,
                                              .padding_idx = 0,
                                              .activation = "gelu_pytorch_tanh"});
  // Early config.json files say "gelu" and mean the tanh approximation.
  if (config.activation == kernels::Activation::kGelu)
    config.activation = kernels::Activation::kGeluTanh;
  config.norm = NormKind::kRmsPlusOne;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.is_embedding_scale_rounded = true;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  add_rope(reader, config, {});
  return config;
}

}  // namespace

/// Gemma: norms multiply by 1 + weight, scaled embeddings.
extern const Family kGemma{
    .architecture = "GemmaForCausalLM",
    .model_type = "gemma",
    .config_class = "GemmaConfig",
    .layer_class = "GemmaDecoderLayer",
    .classifier = "GemmaForSequenceClassification",
    .read_config = read_gemma,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
