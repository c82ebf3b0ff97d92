#include "recipes/build/tensor_roles.h"

#include <map>
#include <set>
#include <string>

#include "nn/layers.h"

namespace automodel::recipes {

optim::TensorRoles tensor_roles(const models::CausalLM& model) {
  std::set<std::string> embeddings;
  for (const auto& item : model.named_modules("", false)) {
    if (dynamic_cast<const nn::Embedding*>(item.value().get()) != nullptr) {
      embeddings.insert(item.key() + ".weight");
    }
  }
  std::map<std::string, int64_t> dims;
  for (const auto& item : model.named_parameters()) dims[item.key()] = item.value().dim();
  optim::TensorRoles roles;
  for (const tensor::ParameterPart& part : model.key_map()) {
    const auto found = dims.find(part.parameter);
    if (found == dims.end()) continue;
    auto role = optim::TensorRole::kVector;
    if (embeddings.contains(part.parameter)) {
      role = optim::TensorRole::kEmbedding;
    } else if (part.name.find("lm_head") != std::string::npos) {
      role = optim::TensorRole::kHead;
    } else if (found->second == 2 && part.shape.size() == 2) {
      role = optim::TensorRole::kMatrix;
    }
    roles[part.name] = role;
  }
  return roles;
}

optim::TensorRoles optimizer_roles(const Recipe& recipe, const models::CausalLM& model) {
  return recipe.optimizer.changes_matrices ? tensor_roles(model) : optim::TensorRoles();
}

}  // namespace automodel::recipes
