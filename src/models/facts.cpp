#include "models/facts.h"

#include "models/families/families.h"

namespace automodel::models {

std::vector<FamilyFacts> family_facts() {
  std::vector<FamilyFacts> facts;
  for (const decoder::Family* family : decoder::kFamilies) {
    facts.push_back({.architecture = family->architecture,
                     .module = family->module.empty() ? family->model_type : family->module,
                     .config_class = family->config_class,
                     .layer_class = family->layer_class,
                     .experts_class = family->experts_class,
                     .classifier = family->classifier,
                     .upstream_config_class = family->upstream.config_class});
  }
  return facts;
}

}  // namespace automodel::models
