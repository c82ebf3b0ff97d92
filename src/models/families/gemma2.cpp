#include "models/decoder/family.h"
#include "models/families/gemma2_kind.h"

namespace automodel::models::decoder {

DecoderConfig read_gemma2(ConfigReader& reader) {
  DecoderConfig config = read_gemma2_kind(reader, 8192);
  // An explicit null turns a cap off; an absent key takes the class's default.
  const auto cap = [&](const char* key, double absent) {
    return reader.not_negative(key, reader.json().contains(key) ? 0 : absent);
  };
  config.attention_softcap = cap("attn_logit_softcapping", 50.0);
  config.final_softcap = cap("final_logit_softcapping", 30.0);
  add_windows(reader, config, reader.size("sliding_window", 4096),
              [](int64_t layer) { return layer % 2 == 0; });
  add_rope(reader, config, {});
  return config;
}

/// Gemma 2: soft caps, every other layer slides, norms around each branch.
extern const Family kGemma2{
    .architecture = "Gemma2ForCausalLM",
    .model_type = "gemma2",
    .config_class = "Gemma2Config",
    .layer_class = "Gemma2DecoderLayer",
    .classifier = "Gemma2ForSequenceClassification",
    .read_config = read_gemma2,
    .names = kGemmaKindNames,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
