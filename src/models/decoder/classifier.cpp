#include "models/decoder/classifier.h"

#include "core/text.h"
#include "models/class_names.h"
#include "models/decoder/embedder.h"
#include "models/named_class.h"

namespace automodel::models::decoder {

bool is_classifier(const Family& family, const Json& hf_config) {
  return !family.classifier.empty() && named_class(hf_config) == family.classifier;
}

std::vector<std::string> class_head_modules(const Family& family) {
  const auto module_of = [](std::string_view layer) {
    return std::string(layer.substr(0, layer.find('.')));
  };
  std::vector<std::string> modules = {module_of(family.names.classes)};
  if (family.names.has_pooler_beside_classes) {
    modules.insert(modules.begin(), module_of(family.names.pooler));
  }
  return modules;
}

DecoderConfig read_options(const Family& family, ConfigReader& reader) {
  DecoderConfig config = family.read_config(reader);
  if (is_embedder(reader.json())) {
    make_embedder(family, reader, config);
    return config;
  }
  if (!is_classifier(family, reader.json())) {
    if (config.pooler) {
      reader.problem(cat("a model of type '", family.model_type,
                         "' is an encoder: this version trains it to classify texts "
                         "(NeMoAutoModelForSequenceClassification) or to make embeddings of them "
                         "(NeMoAutoModelBiEncoder) alone"));
    }
    return config;
  }
  const ClassNames classes = class_names(reader.json());
  if (!classes.problem.empty()) reader.problem(classes.problem);
  config.num_labels = std::ssize(classes.names);
  config.is_head_tied = config.is_head_normed = false;
  config.has_head_bias = config.pooler.has_value();
  config.logit_scale = 1.0;
  config.final_softcap = 0;
  return config;
}

}  // namespace automodel::models::decoder
