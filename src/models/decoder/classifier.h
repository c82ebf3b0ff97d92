#pragma once

#include "models/decoder/config_reader.h"
#include "models/decoder/decoder_config.h"
#include "models/decoder/family.h"

namespace automodel::models::decoder {

/// Whether `architectures` of a config.json names the family's class that classifies sequences.
bool is_classifier(const Family& family, const Json& hf_config);

/// The options that the family reads. Where config.json's class classifies sequences, the head has
/// a row a label (id2label, else num_labels, else two, as transformers counts them), without bias,
/// scale or cap, and is not the embedding.
DecoderConfig read_options(const Family& family, ConfigReader& reader);

}  // namespace automodel::models::decoder
