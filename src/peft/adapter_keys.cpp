#include "peft/adapter_keys.h"

#include <map>
#include <string>
#include <utility>

#include "core/text.h"
#include "models/catalog.h"
#include "peft/quantize_base.h"
#include "peft/tensor_names.h"

namespace automodel::peft {

bool is_adapter_tensor(std::string_view name) {
  return name.ends_with(kLoraA) || name.ends_with(kLoraB) || name.ends_with(kLoraMagnitude);
}

tensor::KeyMap base_keys(const models::CausalLM& model) {
  tensor::KeyMap keys = model.key_map();
  std::erase_if(keys, [](const auto& part) { return is_adapter_tensor(part.name); });
  std::map<std::string, tensor::ParameterPart> floats;
  for (QuantizedMatrix& matrix : quantized_matrices(model)) {
    floats.emplace(matrix.segment, std::move(matrix.floats));
  }
  for (tensor::ParameterPart& part : keys) {
    if (const auto found = floats.find(part.name); found != floats.end()) part = found->second;
  }
  return keys;
}

tensor::KeyMap adapter_keys(const models::CausalLM& model) {
  tensor::KeyMap keys = model.key_map();
  std::erase_if(keys, [](const auto& part) { return !is_adapter_tensor(part.name); });
  return keys;
}

tensor::KeyMap folder_keys(const models::CausalLM& model) {
  tensor::KeyMap keys = model.key_map();
  const std::vector<std::string> whole = model.saved_modules();
  std::erase_if(keys, [&](const auto& part) {
    return !is_adapter_tensor(part.name) && !is_of_modules(part.name, whole);
  });
  return keys;
}

bool has_tied_head(const Json& hf_config) {
  if (!models::find_family(hf_config).is_known || !models::check_config(hf_config).empty()) {
    return hf_config.get("tie_word_embeddings", true);
  }
  const auto model = models::build_causal_lm(hf_config, at::kFloat);
  return model->is_head_tied() && model->class_head().empty();
}

std::string tied_saved_embedding(const models::CausalLM& model) {
  if (!model.is_head_tied() || !model.class_head().empty()) return "";
  const std::string embedding = cat(model.parallel_plan().embedding, ".weight");
  const std::vector<std::string> saved = model.saved_modules();
  for (const tensor::ParameterPart& part : model.key_map()) {
    if (part.parameter == embedding && is_of_modules(part.name, saved)) return part.name;
  }
  return "";
}

}  // namespace automodel::peft
