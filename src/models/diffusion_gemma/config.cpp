#include "models/diffusion_gemma/config.h"

#include "core/text.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::diffusion_gemma {

namespace {

using decoder::ConfigReader;
using decoder::DecoderConfig;

void refuse_what_is_not_built(ConfigReader& reader, const DecoderConfig& text) {
  if (text.attention_dropout > 0) {
    reader.problem("attention_dropout above 0 is not built for DiffusionGemma");
  }
  if (reader.flag("attention_bias", false)) {
    reader.problem("attention_bias true is not built for DiffusionGemma");
  }
}

DiffusionGemmaConfig read_text(ConfigReader& reader) {
  DiffusionGemmaConfig config;
  DecoderConfig& text = config.text;
  text = decoder::read_gemma4_kind(reader, 131072);
  refuse_what_is_not_built(reader, text);
  text.final_softcap = reader.not_negative("final_logit_softcapping", 30.0);
  if (!text.is_head_tied)
    reader.problem("tie_word_embeddings false is not built: the head is the embedding");
  config.layers = decoder::read_gemma4_layers(reader, text, /*are_values_keys=*/true);
  config.window = reader.size("sliding_window", 512);
  decoder::set_gemma4_layers(reader, config.layers, config.window, text);
  text.moe = decoder::read_gemma4_experts(reader, text);
  decoder::use_experts_from(text, 0);
  return config;
}

}  // namespace

DiffusionGemmaConfig read_diffusion_gemma(ConfigReader& reader) {
  const Json none = Json::object();
  const Json* nested = reader.find("text_config");
  if (nested == nullptr || !nested->is_object()) {
    reader.problem("text_config is missing: the sizes of DiffusionGemma's text model");
    nested = nullptr;
  }
  ConfigReader text(nested != nullptr ? *nested : none);
  DiffusionGemmaConfig config = read_text(text);
  if (nested != nullptr) {
    for (const std::string& problem : text.problems()) reader.problem(cat("text_config.", problem));
  }
  if (!reader.flag("tie_word_embeddings", true)) {
    reader.problem(
        "tie_word_embeddings false is not built: text is read and denoised by the same layers");
  }
  config.canvas_length = reader.size("canvas_length", 256);
  config.has_self_conditioning = reader.flag("self_conditioning", true);
  config.is_router_frozen = reader.flag("freeze_router", true);
  return config;
}

DecoderConfig read_config(ConfigReader& reader) {
  return read_diffusion_gemma(reader).text;
}

}  // namespace automodel::models::diffusion_gemma
