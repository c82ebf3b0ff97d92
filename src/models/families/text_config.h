#pragma once

#include <string_view>

#include "models/decoder/config_reader.h"

namespace automodel::models::decoder {

using ReadConfig = DecoderConfig (*)(ConfigReader& reader);

/// Reads the text model of a config.json that also has towers: `read` of its text_config; whether
/// the head is tied comes from the whole.
DecoderConfig read_text_config(ConfigReader& reader, ReadConfig read);

/// Read Mistral's text model, Ministral 3's and Mistral 4's, one of which Mistral 3's files hold.
DecoderConfig read_mistral(ConfigReader& reader);
DecoderConfig read_ministral3(ConfigReader& reader);
DecoderConfig read_mistral4(ConfigReader& reader);

}  // namespace automodel::models::decoder
