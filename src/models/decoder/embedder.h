#pragma once

#include <string>
#include <string_view>

#include "core/json.h"
#include "models/decoder/config_reader.h"
#include "models/decoder/decoder_config.h"
#include "models/decoder/family.h"
#include "tensor/key_map.h"

namespace automodel::models::decoder {

/// The family's class in transformers that ends with the last hidden states: LlamaModel of
/// LlamaForCausalLM, BertModel. "" where the name of the class with a head does not say it.
std::string headless_class(const Family& family);

/// Whether a config.json is that of a model which makes embeddings of texts: its class is one
/// without a head, and its key `pooling` says how hidden states become an embedding.
bool is_embedder(const Json& hf_config);

/// Makes options that a family read those of its model that makes embeddings of texts: without a
/// head or pooler, with attention in both directions unless is_causal says otherwise.
void make_embedder(const Family& family, ConfigReader& reader, DecoderConfig& config);

/// The key map without what all names of the family's own tensors begin with ("model."): the model
/// without a head is not part of another in its files.
tensor::KeyMap without_base_prefix(tensor::KeyMap parts, const Family& family);

}  // namespace automodel::models::decoder
