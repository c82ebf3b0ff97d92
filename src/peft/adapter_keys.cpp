#include "peft/adapter_keys.h"

#include <map>
#include <string>
#include <utility>

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
  const std::vector<std::string> head = model.class_head();
  std::erase_if(keys, [&](const auto& part) {
    return !is_adapter_tensor(part.name) && !is_of_head(part.name, head);
  });
  return keys;
}

}  // namespace automodel::peft
