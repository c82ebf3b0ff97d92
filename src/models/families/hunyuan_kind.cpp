#include "models/families/hunyuan_kind.h"

#include <cmath>

#include "core/text.h"

namespace automodel::models::decoder {

namespace {

/// Dynamic NTK scaling by a fixed alpha: rotation with a theta of alpha^(d / (d - 2)) times its
/// own, at every length.
void add_stretched_rope(ConfigReader& reader, DecoderConfig& config) {
  add_rope(reader, config, {});
  const Json* parameters = reader.find("rope_scaling");
  if (parameters == nullptr || parameters->size() == 0) parameters = reader.find("rope_parameters");
  nn::RopeOptions& rope = config.ropes[0];
  if (parameters == nullptr || !parameters->is_object() || rope.type != nn::RopeType::kDynamic) {
    return;
  }
  ConfigReader own(*parameters);
  const double alpha = own.number("alpha", 0);
  for (const std::string& text : own.problems()) reader.problem(cat("rope_parameters.", text));
  if (alpha == 0) return;
  if (alpha < 0 || config.head_dim <= 2) {
    reader.problem(cat("rope_parameters.alpha is ", alpha, " for heads of ", config.head_dim,
                       "; it must be above 0, of heads of more than 2 dims"));
    return;
  }
  const auto dim = static_cast<double>(config.head_dim);
  rope.type = nn::RopeType::kDefault;
  rope.theta *= std::pow(alpha, dim / (dim - 2));
}

}  // namespace

DecoderConfig read_hunyuan_kind(ConfigReader& reader) {
  DecoderConfig config =
      read_common(reader, {.requires_kv_heads = false, .norm_eps = 1e-5, .padding_idx = 0});
  config.qk_norm = QkNorm::kPerHead;
  config.is_qk_norm_last = true;
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  add_stretched_rope(reader, config);
  if (!reader.flag("use_qk_norm", true)) {
    reader.problem("use_qk_norm false is not in this version: transformers norms q and k");
  }
  if (reader.flag("use_cla", false)) {
    reader.problem("use_cla true is not in this version: layers that share keys and values");
  }
  return config;
}

}  // namespace automodel::models::decoder
