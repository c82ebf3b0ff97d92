#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "core/text.h"
#include "models/decoder/family.h"
#include "models/families/gpt_kind.h"

namespace automodel::models::decoder {

namespace {

/// Whether each layer sees a window only: `attention_layers`, or `attention_types`, pairs of a list
/// of kinds and how often it is repeated.
std::vector<bool> read_local_layers(ConfigReader& reader, int64_t num_layers) {
  std::vector<bool> out;
  bool is_right = true;
  const auto add = [&](const Json& kind) {
    const std::string word = kind.is_string() ? kind.as_string() : "";
    is_right = is_right && (word == "global" || word == "local");
    out.push_back(word == "local");
  };
  const auto add_list = [&](const Json& kinds) {
    is_right = is_right && kinds.is_array();
    if (!kinds.is_array()) return;
    for (const Json& kind : kinds.as_array()) add(kind);
  };
  if (const Json* layers = reader.find("attention_layers")) {
    add_list(*layers);
  } else if (const Json* types = reader.find("attention_types"); types && types->is_array()) {
    for (const Json& item : types->as_array()) {
      const bool is_pair = item.is_array() && item.size() == 2 && item.as_array()[1].is_int();
      const int64_t times = is_pair ? item.as_array()[1].as_int() : 0;
      is_right = is_right && times >= 0 && times <= num_layers;
      for (int64_t i = 0; is_right && i < times; ++i) add_list(item.as_array()[0]);
    }
  } else {
    for (int64_t i = 0; i < num_layers; ++i) out.push_back(i % 2 == 1);
  }
  if (!is_right || std::ssize(out) != num_layers) {
    reader.problem(cat("attention_layers must say of each of the ", num_layers,
                       " layers whether it is \"global\" or \"local\" (or attention_types, e.g. "
                       "[[[\"global\", \"local\"], ",
                       num_layers / 2, "]])"));
    out.assign(static_cast<size_t>(num_layers), false);
  }
  return out;
}

DecoderConfig read_gpt_neo(ConfigReader& reader) {
  DecoderConfig config = read_gpt_kind(reader, {.hidden_size = "hidden_size",
                                                .intermediate_size = "intermediate_size",
                                                .num_layers = "num_layers",
                                                .num_heads = "num_heads",
                                                .positions = "max_position_embeddings",
                                                .embedding_dropout = "embed_dropout",
                                                .residual_dropout = "resid_dropout",
                                                .attention_dropout = "attention_dropout",
                                                .max_positions = 2048});
  config.has_attention_output_bias = config.has_mlp_bias = true;
  config.has_learned_positions = true;
  for (LayerOptions& layer : config.layers) layer.attention_scale = 1.0;
  set_windows(config, reader.size("window_size", 256),
              read_local_layers(reader, config.num_layers()));
  return config;
}

}  // namespace

/// GPT-Neo: GPT-2 with scores that are not scaled, and a window in every other layer.
extern const Family kGptNeo{
    .architecture = "GPTNeoForCausalLM",
    .model_type = "gpt_neo",
    .config_class = "GPTNeoConfig",
    .layer_class = "GPTNeoBlock",
    .classifier = "GPTNeoForSequenceClassification",
    .read_config = read_gpt_neo,
    .names = {.embedding = "transformer.wte",
              .positions = "transformer.wpe",
              .layers = "transformer.h",
              .final_norm = "transformer.ln_f",
              .attention = "attn.attention",
              .output = "out_proj",
              .up = "c_fc",
              .down = "c_proj",
              .attention_pre_norm = "ln_1",
              .mlp_pre_norm = "ln_2"},
    .flops = gpt_flops,
};

}  // namespace automodel::models::decoder
