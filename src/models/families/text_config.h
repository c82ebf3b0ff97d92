#pragma once

#include <string_view>

#include "models/decoder/config_reader.h"

namespace automodel::models::decoder {

using ReadConfig = DecoderConfig (*)(ConfigReader& reader);

/// The text model of a config.json that has towers too: what `read` makes of its text_config, with
/// a tied head as the whole says.
DecoderConfig read_text_config(ConfigReader& reader, ReadConfig read);

/// Mistral's, and Ministral 3's, which the files of Mistral 3 hold beside a tower.
DecoderConfig read_mistral(ConfigReader& reader);
DecoderConfig read_ministral3(ConfigReader& reader);

}  // namespace automodel::models::decoder
