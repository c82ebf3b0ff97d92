#include "recipes/check/check_quantization.h"

#include "checkpoint/quantized_tensor.h"
#include "core/error.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

}  // namespace

void check_stored_quantization(const Recipe& recipe, Diagnostics& diagnostics) {
  const bool draws = recipe.model.is_from_config || recipe.model.section.load_base_model == false;
  if (draws || !recipe.model.hf_config.is_object()) return;
  if (const Node* changed = recipe.model.node.find("quantization_config")) {
    diagnostics.unsupported(*changed,
                            "a quantization_config of the recipe is not in this version: the "
                            "folder's config.json says how its weights are stored");
    return;
  }
  const Node* named = recipe.model.node.find("pretrained_model_name_or_path");
  const Node& place = named != nullptr ? *named : recipe.model.node;
  std::optional<checkpoint::Quantization> quantization;
  try {
    quantization = checkpoint::read_quantization(recipe.model.hf_config);
  } catch (const UnsupportedError& error) {
    diagnostics.unsupported(place, error.what());
  } catch (const UserError& error) {
    diagnostics.error(place, error.what());
  }
  if (!quantization || recipe.checkpoint.dequantize_base_checkpoint.value_or(true)) return;
  diagnostics.error(
      *recipe.root.find_path("checkpoint.dequantize_base_checkpoint"),
      cat("the base model's weights are quantized (", checkpoint::method_name(quantization->method),
          "), and dequantize_base_checkpoint: false forbids to train the floats that "
          "they stand for; leave the key out, or name a model with float weights"));
}

}  // namespace automodel::recipes
