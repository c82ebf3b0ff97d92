#include "models/decoder/family.h"
#include "models/families/qwen_delta_kind.h"
#include "models/families/text_config.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_qwen3_5(ConfigReader& reader) {
  return read_qwen_delta_kind(reader, {});
}

DecoderConfig read_qwen3_5_moe(ConfigReader& reader) {
  DecoderConfig config = read_qwen_delta_kind(
      reader, {.intermediate_size = reader.size("moe_intermediate_size", 512)});
  config.moe = read_qwen_delta_experts(
      reader, config,
      {.default_num_experts = 256, .default_inner_dim = 512, .default_num_chosen = 8});
  use_experts_from(config, 0);
  return config;
}

/// Reads whether the head is tied from the whole config.json, not its text part; absent means not
/// tied.
DecoderConfig without_texts_tie(ConfigReader& reader, DecoderConfig config) {
  config.is_head_tied = reader.flag("tie_word_embeddings", false);
  return config;
}

DecoderConfig read_qwen3_5_with_tower(ConfigReader& reader) {
  return without_texts_tie(reader, read_text_config(reader, read_qwen3_5));
}

DecoderConfig read_qwen3_5_moe_with_tower(ConfigReader& reader) {
  return without_texts_tie(reader, read_text_config(reader, read_qwen3_5_moe));
}

constexpr HfNames kTowerNames = {.embedding = "model.language_model.embed_tokens",
                                 .layers = "model.language_model.layers",
                                 .final_norm = "model.language_model.norm",
                                 .shared_experts = "shared_expert"};

}  // namespace

/// Qwen 3.5's text model: Qwen 3 Next's layers with dense MLPs.
extern const Family kQwen3p5{
    .architecture = "Qwen3_5ForCausalLM",
    .model_type = "qwen3_5_text",
    .module = "qwen3_5",
    .config_class = "Qwen3_5TextConfig",
    .layer_class = "Qwen3_5DecoderLayer",
    .classifier = "Qwen3_5TextForSequenceClassification",
    .read_config = read_qwen3_5,
    .kept_prefixes = {"mtp."},
    .flops = qwen_delta_flops,
};

/// Qwen 3.5's text model with experts in every layer.
extern const Family kQwen3p5Moe{
    .architecture = "Qwen3_5MoeForCausalLM",
    .model_type = "qwen3_5_moe_text",
    .module = "qwen3_5_moe",
    .config_class = "Qwen3_5MoeTextConfig",
    .layer_class = "Qwen3_5MoeDecoderLayer",
    .experts_class = "Qwen3_5MoeExperts",
    .read_config = read_qwen3_5_moe,
    .names = kQwenDeltaNames,
    .kept_prefixes = {"mtp."},
    .flops = qwen_delta_flops,
};

/// Qwen 3.5 as it is released: the text model beside a vision tower, which is left alone.
extern const Family kQwen3p5Tower{
    .architecture = "Qwen3_5ForConditionalGeneration",
    .model_type = "qwen3_5",
    .config_class = "Qwen3_5Config",
    .layer_class = "Qwen3_5DecoderLayer",
    .read_config = read_qwen3_5_with_tower,
    .names = kTowerNames,
    .kept_prefixes = {"mtp.", "model.visual."},
    .flops = qwen_delta_flops,
};

/// Qwen 3.5 with experts as it is released, beside a vision tower.
extern const Family kQwen3p5MoeTower{
    .architecture = "Qwen3_5MoeForConditionalGeneration",
    .model_type = "qwen3_5_moe",
    .config_class = "Qwen3_5MoeConfig",
    .layer_class = "Qwen3_5MoeDecoderLayer",
    .experts_class = "Qwen3_5MoeExperts",
    .read_config = read_qwen3_5_moe_with_tower,
    .names = kTowerNames,
    .kept_prefixes = {"mtp.", "model.visual."},
    .flops = qwen_delta_flops,
};

}  // namespace automodel::models::decoder
