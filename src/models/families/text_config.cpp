#include "models/families/text_config.h"

#include <string>

#include "core/text.h"

namespace automodel::models::decoder {

DecoderConfig read_text_config(ConfigReader& reader, ReadConfig read) {
  const Json* nested = reader.find("text_config");
  const bool is_object = nested != nullptr && nested->is_object();
  if (!is_object) reader.problem("text_config is missing: the sizes of the text model");
  Json text = is_object ? *nested : Json::object();
  if (const Json* tied = reader.find("tie_word_embeddings")) text["tie_word_embeddings"] = *tied;
  ConfigReader own(text);
  DecoderConfig config = read(own);
  if (!is_object) return config;
  for (const std::string& problem : own.problems()) reader.problem(cat("text_config.", problem));
  return config;
}

}  // namespace automodel::models::decoder
