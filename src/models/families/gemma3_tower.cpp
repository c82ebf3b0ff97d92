#include <cstdint>
#include <utility>

#include "models/decoder/family.h"
#include "models/families/gemma2_kind.h"
#include "models/families/text_config.h"

namespace automodel::models::decoder {

namespace {

/// The text model's configuration, of which released folders leave out what transformers' class
/// says.
Json with_class_defaults(Json text) {
  constexpr std::pair<const char*, int64_t> kDefaults[] = {
      {"vocab_size", 262208},    {"hidden_size", 2304},      {"intermediate_size", 9216},
      {"num_hidden_layers", 26}, {"num_attention_heads", 8}, {"num_key_value_heads", 4},
  };
  for (const auto& [key, value] : kDefaults) {
    if (!text.contains(key)) text[key] = Json(value);
  }
  return text;
}

DecoderConfig read_gemma3_text(ConfigReader& reader) {
  const Json whole = with_class_defaults(reader.json());
  ConfigReader own(whole);
  DecoderConfig config = read_gemma3(own);
  reader.add_problems_of(own);
  return config;
}

DecoderConfig read_gemma3_tower(ConfigReader& reader) {
  return read_text_config(reader, read_gemma3_text);
}

}  // namespace

/// Gemma 3 as released in 4B, 12B and 27B: the text model beside a vision tower, which is not
/// built.
extern const Family kGemma3Tower{
    .architecture = "Gemma3ForConditionalGeneration",
    .model_type = "gemma3",
    .config_class = "Gemma3Config",
    .layer_class = "Gemma3DecoderLayer",
    .read_config = read_gemma3_tower,
    .names = {.embedding = "language_model.model.embed_tokens",
              .layers = "language_model.model.layers",
              .final_norm = "language_model.model.norm",
              .head = "language_model.lm_head",
              .attention_post_norm = "post_attention_layernorm",
              .mlp_pre_norm = "pre_feedforward_layernorm",
              .mlp_post_norm = "post_feedforward_layernorm"},
    .module_names = {{{"language_model.model.", "model.language_model."},
                      {"language_model.lm_head", "lm_head"}}},
    .kept_prefixes = {"vision_tower.", "multi_modal_projector."},
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
