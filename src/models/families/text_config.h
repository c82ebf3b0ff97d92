#pragma once

#include <string_view>

#include "models/decoder/config_reader.h"

namespace automodel::models::decoder {

using ReadConfig = DecoderConfig (*)(ConfigReader& reader);

/// Reads the text model of a config.json that also has towers: `read` of its text_config; whether
/// the head is tied comes from the whole.
DecoderConfig read_text_config(ConfigReader& reader, ReadConfig read);

/// Reads Mistral's text model, or Ministral 3's, either of which Mistral 3's files hold.
DecoderConfig read_mistral(ConfigReader& reader);
DecoderConfig read_ministral3(ConfigReader& reader);

}  // namespace automodel::models::decoder
