#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "models/catalog.h"
#include "models/causal_lm.h"
#include "support/temporary_directory.h"
#include "tensor/dtype.h"
#include "tensor/named_tensors.h"

namespace automodel::test {

/// Tensors of a safetensors file that the repository itself holds (nothing is checked).
inline tensor::NamedTensors read_trusted_safetensors(const std::string& path) {
  const std::string bytes = read_file(path);
  uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), sizeof header_size);
  const Json header = Json::parse(std::string_view(bytes).substr(8, header_size), path);
  tensor::NamedTensors tensors;
  for (const auto& [name, entry] : header.as_object()) {
    if (name == "__metadata__") continue;
    std::vector<int64_t> shape;
    for (const Json& size : entry.at("shape").as_array()) shape.push_back(size.as_int());
    const auto dtype = tensor::parse_safetensors_dtype(entry.at("dtype").as_string());
    at::Tensor value = at::empty(shape, at::TensorOptions().dtype(*dtype));
    const int64_t begin = entry.at("data_offsets").as_array()[0].as_int();
    std::memcpy(value.data_ptr(), bytes.data() + 8 + header_size + begin, value.nbytes());
    tensors.emplace_back(name, value);
  }
  return tensors;
}

/// Gives every parameter zeroed memory of its own.
inline void give_memory(models::CausalLM& model) {
  for (const auto& item : model.named_parameters()) {
    at::Tensor parameter = item.value();
    parameter.set_data(at::zeros(parameter.sizes(), parameter.options()));
  }
}

/// Copies tensors of a checkpoint into the parameters by the key map; every part must be there.
inline void load_tensors(models::CausalLM& model, const tensor::NamedTensors& tensors) {
  const auto parameters = model.named_parameters();
  for (const tensor::ParameterPart& part : model.key_map()) {
    const at::Tensor* source = nullptr;
    for (const auto& [name, value] : tensors) {
      if (name == part.name) source = &value;
    }
    AM_CHECK(source != nullptr, "no tensor ", part.name);
    AM_CHECK(source->sizes() == at::IntArrayRef(part.shape), part.name);
    const at::Tensor* parameter = parameters.find(part.parameter);
    AM_CHECK(parameter != nullptr, part.parameter);
    tensor::part_of(parameter->detach(), part).copy_(*source);
  }
}

inline std::string golden_file(const std::string& name, const std::string& file) {
  return source_file(cat("tests/golden/", name, "/", file));
}

/// The model of tests/golden/<name> with its weights.
/// `changes` of its configuration leave its parameters as they are.
inline std::shared_ptr<models::CausalLM> load_golden_model(
    const std::string& name, const std::vector<std::pair<std::string, Json>>& changes = {}) {
  Json config = Json::parse_file(golden_file(name, "config.json"));
  for (const auto& [key, value] : changes) config[key] = value;
  auto model = models::build_causal_lm(config, at::kFloat);
  give_memory(*model);
  load_tensors(*model, read_trusted_safetensors(golden_file(name, "model.safetensors")));
  return model;
}

}  // namespace automodel::test
