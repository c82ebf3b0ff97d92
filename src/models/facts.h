#pragma once

#include <string_view>
#include <vector>

namespace automodel::models {

/// What transformers calls the classes of a family, by which recipes and upstream name them.
struct FamilyFacts {
  std::string_view architecture;  ///< "LlamaForCausalLM"
  std::string_view module;        ///< of transformers.models
  std::string_view config_class;
  std::string_view layer_class;
  std::string_view experts_class;  ///< of a layer's grouped experts; "" without
};

/// The facts of every family that is built here.
std::vector<FamilyFacts> family_facts();

}  // namespace automodel::models
