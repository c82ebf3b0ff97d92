#include "recipes/build/build_model.h"

#include "models/catalog.h"
#include "peft/apply_lora.h"

namespace automodel::recipes {

std::shared_ptr<models::CausalLM> build_model(const Recipe& recipe, at::ScalarType dtype) {
  auto model = models::build_causal_lm(recipe.model.hf_config, dtype);
  if (recipe.peft) peft::apply_lora(*model, *recipe.peft, dtype);
  return model;
}

}  // namespace automodel::recipes
