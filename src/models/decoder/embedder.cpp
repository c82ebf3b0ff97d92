#include "models/decoder/embedder.h"

#include <algorithm>

#include "core/text.h"
#include "models/named_class.h"
#include "models/text_pooling.h"

namespace automodel::models::decoder {

namespace {

/// What attention in both directions is not built for, of a family that reads from left to right;
/// "" for nothing.
std::string_view obstacle(const Family& family, const DecoderConfig& config) {
  if (family.build != nullptr) return "its modules are its own";
  if (config.has_recurrence()) return "layers carry a state from token to token";
  if (config.has_chunks()) return "attention sees chunks";
  if (config.indexer || config.compressed_attention) return "an indexer chooses keys";
  if (config.layer_inputs || config.shares_keys()) return "layers share keys or have own inputs";
  if (config.hyper_connections) return "it has several streams";
  return "";
}

}  // namespace

std::string headless_class(const Family& family) {
  for (const std::string_view end : {"ForCausalLM", "ForSequenceClassification", "LMHeadModel"}) {
    if (!family.architecture.ends_with(end)) continue;
    return cat(family.architecture.substr(0, family.architecture.size() - end.size()), "Model");
  }
  return "";
}

bool is_embedder(const Json& hf_config) {
  const Json* pooling = hf_config.find(kPoolingKey);
  const std::string name = named_class(hf_config);
  return pooling != nullptr && pooling->is_string() && name.ends_with("Model") &&
         !name.ends_with("LMHeadModel");
}

void make_embedder(const Family& family, ConfigReader& reader, DecoderConfig& config) {
  const std::string_view why_not = obstacle(family, config);
  if (!why_not.empty()) {
    reader.problem(
        cat("embeddings of a ", family.architecture, " are not in this version: ", why_not));
  }
  const std::string pooling = reader.text(kPoolingKey, "");
  const auto kind = parse_text_pooling(pooling);
  if (!kind) reader.problem(cat("pooling ", text_pooling_problem(pooling)));
  config.text_pooling = kind.value_or(TextPooling::kMean);
  config.makes_embeddings = true;
  config.is_head_tied = true;  // of what a head would be there is nothing
  config.has_head_bias = config.is_head_normed = false;
  config.final_softcap = 0;
  config.logit_scale = 1.0;
  config.next_tokens.reset();
  // An encoder of the BERT kind ends with the norm of its last layer.
  config.lacks_final_norm = !config.has_final_norm();
  config.pooler.reset();
  const bool was_causal = config.is_causal;
  config.is_causal = was_causal && reader.flag("is_causal", false);
  if (!was_causal || config.is_causal) return;
  // transformers lets a query see as many tokens behind it as before, so many on either side.
  for (LayerOptions& layer : config.layers) {
    if (layer.window > 0) layer.window += 1;
  }
}

tensor::KeyMap without_base_prefix(tensor::KeyMap parts, const Family& family) {
  const std::string_view layers = family.names.layers;
  const std::string prefix(layers.substr(0, layers.find('.') + 1));
  const auto has_it = [&](const tensor::ParameterPart& part) {
    return part.name.starts_with(prefix);
  };
  if (!std::ranges::all_of(parts, has_it)) return parts;
  for (tensor::ParameterPart& part : parts) part.name.erase(0, prefix.size());
  return parts;
}

}  // namespace automodel::models::decoder
