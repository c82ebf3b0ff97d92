#pragma once

#include <string_view>
#include <vector>

namespace automodel::models {

/// The names of a family's classes in transformers, which recipes and upstream use.
struct FamilyFacts {
  std::string_view architecture;  ///< "LlamaForCausalLM"
  std::string_view module;        ///< of transformers.models
  std::string_view config_class;
  std::string_view layer_class;
  std::string_view experts_class;          ///< class of a layer's grouped experts; "": none
  std::string_view classifier;             ///< class that classifies sequences; "": none
  std::string_view upstream_config_class;  ///< upstream's own, dotted; "": none
};

/// The facts of every family that is built here.
std::vector<FamilyFacts> family_facts();

}  // namespace automodel::models
