#include "models/decoder/classifier.h"

#include "core/text.h"

namespace automodel::models::decoder {

namespace {

int64_t num_labels_of(ConfigReader& reader) {
  const Json* names = reader.find("id2label");
  if (names != nullptr && names->is_object()) return static_cast<int64_t>(names->size());
  return reader.size("num_labels", 2);
}

}  // namespace

bool is_classifier(const Family& family, const Json& hf_config) {
  const Json* list = hf_config.find("architectures");
  if (family.classifier.empty() || list == nullptr || !list->is_array() || list->size() == 0) {
    return false;
  }
  const Json& first = list->as_array().front();
  return first.is_string() && first.as_string() == family.classifier;
}

DecoderConfig read_options(const Family& family, ConfigReader& reader) {
  DecoderConfig config = family.read_config(reader);
  if (!is_classifier(family, reader.json())) return config;
  config.num_labels = num_labels_of(reader);
  if (config.num_labels < 2) {
    reader.problem(cat("num_labels is ", config.num_labels,
                       ": classes are two or more; a model that predicts a number (one label) is "
                       "not in this version"));
    config.num_labels = 2;
  }
  config.is_head_tied = config.has_head_bias = config.is_head_normed = false;
  config.logit_scale = 1.0;
  config.final_softcap = 0;
  return config;
}

}  // namespace automodel::models::decoder
