#include "distributed/tensor/tp_layers.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "nn/tensor_parallel.h"

namespace automodel::distributed {

torch::nn::Module* child_of(const torch::nn::Module* module, const std::string& name) {
  if (module == nullptr) return nullptr;
  const auto& children = module->named_children();
  const auto* found = children.find(name);
  return found == nullptr ? nullptr : found->get();
}

std::string parent_of(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

bool is_adapter(const std::string& parameter) {
  return parameter.substr(parameter.rfind('.') + 1).starts_with("lora_");
}

std::vector<TpLayer> find_tp_layers(torch::nn::Module& root, const tensor::KeyMap& keys) {
  std::map<std::string, torch::nn::Module*> modules;
  for (const auto& item : root.named_modules("", false)) modules[item.key()] = item.value().get();
  std::vector<TpLayer> layers;
  for (const tensor::ParameterPart& part : keys) {
    const std::string fqn = parent_of(part.parameter);
    if (layers.empty() || layers.back().fqn != fqn) {
      AM_CHECK(modules.contains(fqn), fqn);
      layers.push_back({fqn, modules.at(fqn), {}, false});
      const auto parent = modules.find(parent_of(fqn));
      layers.back().is_under_heads =
          parent != modules.end() && dynamic_cast<nn::SplitsHeads*>(parent->second) != nullptr;
    }
    if (is_adapter(part.parameter)) continue;  // the layer's own tensors have its name
    std::vector<std::string>& names = layers.back().hf_names;
    const std::string name = parent_of(part.name);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return layers;
}

std::vector<int64_t> output_groups(const nn::Linear& linear) {
  const nn::LinearOptions& options = linear.options();
  return options.groups.empty() ? std::vector<int64_t>{options.out_features} : options.groups;
}

}  // namespace automodel::distributed
