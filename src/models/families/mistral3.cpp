#include <string>

#include "core/text.h"
#include "models/decoder/family.h"
#include "models/families/text_config.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_mistral3(ConfigReader& reader) {
  const Json* text = reader.find("text_config");
  const Json* named = text != nullptr && text->is_object() ? text->find("model_type") : nullptr;
  const std::string type =
      named == nullptr ? "mistral" : (named->is_string() ? named->as_string() : named->dump());
  if (type == "mistral4") return read_text_config(reader, read_mistral4);
  if (type == "ministral3") return read_text_config(reader, read_ministral3);
  if (type != "mistral") {
    reader.problem(
        cat("text_config.model_type '", type, "' is not known; mistral, ministral3, mistral4"));
  }
  return read_text_config(reader, read_mistral);
}

}  // namespace

/// Mistral Small 3.1 and 4, Ministral 3 and Devstral 2 as released: the text model beside a vision
/// tower, which is not built.
extern const Family kMistral3{
    .architecture = "Mistral3ForConditionalGeneration",
    .model_type = "mistral3",
    .config_class = "Mistral3Config",
    .layer_class = "Ministral3DecoderLayer",
    .experts_class = "Mistral4Experts",
    .read_config = read_mistral3,
    .names = {.embedding = "language_model.model.embed_tokens",
              .layers = "language_model.model.layers",
              .final_norm = "language_model.model.norm",
              .head = "language_model.lm_head",
              .are_experts_stacked = true},
    .module_names = {{{"language_model.model.", "model.language_model."},
                      {"language_model.lm_head", "lm_head"}}},
    .kept_prefixes = {"vision_tower.", "multi_modal_projector."},
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
