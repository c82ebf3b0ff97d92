#include "recipes/check/place_of.h"

namespace automodel::recipes {

const config::Node& place_of(const Recipe& recipe, std::string_view section, std::string_view key) {
  const config::Node* node = recipe.root.find(section);
  if (node == nullptr) return recipe.root;
  const config::Node* child = node->find(key);
  return child != nullptr ? *child : *node;
}

}  // namespace automodel::recipes
