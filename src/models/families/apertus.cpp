#include <string>

#include "core/text.h"
#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

Json llama3_rope_of_apertus() {
  return Json::Object{
      {"rope_type", Json("llama3")},  {"rope_theta", Json(12e6)},
      {"factor", Json(8.0)},          {"original_max_position_embeddings", Json(int64_t{8192})},
      {"low_freq_factor", Json(1.0)}, {"high_freq_factor", Json(4.0)}};
}

DecoderConfig read_apertus(ConfigReader& reader) {
  Json whole = reader.json();
  if (const std::string name = reader.text("hidden_act", "xielu"); name != "xielu") {
    reader.problem(cat("hidden_act '", name, "' is not in this version; xielu is"));
  }
  whole.erase("hidden_act");
  ConfigReader own(whole);
  DecoderConfig config =
      read_common(own, {.requires_kv_heads = false, .max_positions = 65536, .norm_eps = 1e-5});
  config.qk_norm = QkNorm::kPerHead;
  config.is_mlp_gated = false;
  config.has_xielu = true;
  config.has_qkv_bias = own.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  add_rope_or(own, config, llama3_rope_of_apertus(), {.theta = 12e6});
  reader.add_problems_of(own);
  return config;
}

}  // namespace

/// Apertus: Llama with norms of q and k per head, and MLPs without a gate whose activation, xIELU,
/// has two learned numbers a layer.
extern const Family kApertus{
    .architecture = "ApertusForCausalLM",
    .model_type = "apertus",
    .config_class = "ApertusConfig",
    .layer_class = "ApertusDecoderLayer",
    .read_config = read_apertus,
    .names = {.attention_pre_norm = "attention_layernorm", .mlp_pre_norm = "feedforward_layernorm"},
    .flops = ungated_flops,
};

}  // namespace automodel::models::decoder
