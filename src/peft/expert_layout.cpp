#include "peft/expert_layout.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.h"
#include "models/catalog.h"
#include "peft/tensor_names.h"

namespace automodel::peft {

namespace {

bool is_factor_a(const tensor::ParameterPart& part) {
  return part.name.ends_with(kLoraA);
}

/// Whether the file's lora_A holds the factor; this differs between the layouts.
bool is_stored_as_a(const tensor::ParameterPart& part, ExpertLayout layout) {
  return is_factor_a(part) == (layout == ExpertLayout::kPeft19);
}

/// "mlp.experts" for "model.layers.3.mlp.experts".
std::string name_in_layer(std::string_view module) {
  const size_t number = module.find("layers.") + std::string_view("layers.").size();
  return std::string(module.substr(module.find('.', number) + 1));
}

}  // namespace

bool is_expert_adapter(const tensor::ParameterPart& part) {
  return part.shape.size() == 3 && (part.name.ends_with(kLoraA) || part.name.ends_with(kLoraB));
}

ExpertLayout layout_of_peft(const Json& hf_config, bool is_earlier) {
  const bool is_exchanged = models::exchanges_expert_factors(hf_config);
  return is_exchanged == is_earlier ? ExpertLayout::kPeft19 : ExpertLayout::kPeft18;
}

at::Tensor to_file(const at::Tensor& factor, const tensor::ParameterPart& part,
                   ExpertLayout layout) {
  const at::Tensor rows = is_factor_a(part) ? factor : factor.transpose(1, 2);  // [E, r, features]
  const int64_t features = rows.size(2);
  return is_stored_as_a(part, layout) ? rows.reshape({-1, features})
                                      : rows.permute({2, 1, 0}).reshape({features, -1});
}

std::string name_in_file(const tensor::ParameterPart& part, ExpertLayout layout) {
  const std::string module = without_suffix(part.name, is_factor_a(part) ? kLoraA : kLoraB);
  return cat(module, is_stored_as_a(part, layout) ? kLoraA : kLoraB);
}

std::vector<int64_t> shape_in_file(const tensor::ParameterPart& part, ExpertLayout layout) {
  const int64_t rank = part.shape[is_factor_a(part) ? 1 : 2];
  const int64_t features = part.shape[is_factor_a(part) ? 2 : 1];
  const int64_t ranks = part.shape[0] * rank;
  return is_stored_as_a(part, layout) ? std::vector<int64_t>{ranks, features}
                                      : std::vector<int64_t>{features, ranks};
}

at::Tensor from_file(const at::Tensor& stored, const tensor::ParameterPart& part,
                     ExpertLayout layout) {
  const int64_t count = part.shape[0];
  const int64_t rank = part.shape[is_factor_a(part) ? 1 : 2];
  // [E, r, features]
  const at::Tensor factor = is_stored_as_a(part, layout)
                                ? stored.reshape({count, rank, -1})
                                : stored.reshape({-1, rank, count}).permute({2, 1, 0});
  return (is_factor_a(part) ? factor : factor.transpose(1, 2)).contiguous();
}

std::vector<std::string> target_parameters(const tensor::KeyMap& keys) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const tensor::ParameterPart& part : keys) {
    if (!is_expert_adapter(part) || !is_factor_a(part)) continue;
    const std::string module = without_suffix(part.name, kLoraA);
    if (!module.ends_with(kInnerExperts)) {
      add(name_in_layer(module) + ".down_proj");
      continue;
    }
    // Gated experts store gate and up in one matrix, named after both.
    const std::string outer = without_suffix(module, kInnerExperts);
    const auto find = [&](const std::string& name) {
      return std::find_if(keys.begin(), keys.end(), [&](const auto& p) { return p.name == name; });
    };
    const int64_t width = find(cat(module, kLoraB))->shape[1];
    const bool is_gated = width == 2 * find(cat(outer, kLoraA))->shape[2];
    add(cat(name_in_layer(outer), is_gated ? ".gate_up_proj" : ".up_proj"));
  }
  return names;
}

}  // namespace automodel::peft
