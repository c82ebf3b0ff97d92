#pragma once

#include <string>

#include "core/json.h"

namespace automodel::models {

/// The class that a config.json's `architectures` names first, "LlamaForCausalLM"; "" for none.
inline std::string named_class(const Json& hf_config) {
  const Json* list = hf_config.find("architectures");
  if (list == nullptr || !list->is_array() || list->size() == 0) return "";
  const Json& first = list->as_array().front();
  return first.is_string() ? first.as_string() : "";
}

}  // namespace automodel::models
