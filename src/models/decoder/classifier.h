#pragma once

#include <string>
#include <vector>

#include "models/decoder/config_reader.h"
#include "models/decoder/decoder_config.h"
#include "models/decoder/family.h"

namespace automodel::models::decoder {

/// Whether `architectures` of a config.json names the family's class that classifies sequences.
bool is_classifier(const Family& family, const Json& hf_config);

/// The modules, in transformers and its files, of the head of the family's class that classifies:
/// what holds the layer with a row a class comes last.
std::vector<std::string> class_head_modules(const Family& family);

/// The options that the family reads. Where config.json's class classifies sequences, the head has
/// a row a label (id2label, else num_labels, else two, as transformers counts them), without scale
/// or cap, with a bias behind an encoder, and is not the embedding. A model that makes embeddings
/// of texts has no head (embedder.h). An encoder is nothing else than one of the two.
DecoderConfig read_options(const Family& family, ConfigReader& reader);

}  // namespace automodel::models::decoder
