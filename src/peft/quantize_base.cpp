#include "peft/quantize_base.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "peft/adapter_keys.h"
#include "peft/tensor_names.h"

namespace automodel::peft {

namespace {

constexpr std::string_view kFourBit = ".four_bit";

/// The linear layers except the head, modules that are trained whole and those that the model
/// keeps, by the fqn of their weight.
std::map<std::string, nn::Linear*> layers_under_head(const models::CausalLM& model) {
  const std::string head = model.parallel_plan().head;
  const std::vector<std::string> saved = model.saved_modules();
  std::map<std::string, nn::Linear*> layers;
  for (const auto& item : model.named_modules("", false)) {
    auto* linear = dynamic_cast<nn::Linear*>(item.value().get());
    const std::string weight = cat(item.key(), ".weight");
    if (linear == nullptr || item.key() == head || model.is_kept_from_four_bits(weight)) continue;
    layers[weight] = linear;
  }
  for (const tensor::ParameterPart& part : model.key_map()) {
    if (is_of_modules(part.name, saved)) layers.erase(part.parameter);
  }
  return layers;
}

}  // namespace

std::vector<std::string> unquantizable_layers(const models::CausalLM& model) {
  const auto layers = layers_under_head(model);
  std::vector<std::string> names;
  for (const tensor::ParameterPart& part : model.key_map()) {
    const auto layer = layers.find(part.parameter);
    if (layer == layers.end()) continue;
    if (layer->second->options().is_transposed ||
        c10::multiply_integers(part.shape) % kernels::kFourBitBlock != 0) {
      names.push_back(part.name);
    }
  }
  return names;
}

void quantize_base(models::CausalLM& model, const BaseQuantization& quantization) {
  const std::vector<std::string> others = unquantizable_layers(model);
  if (!others.empty()) {
    throw UnsupportedError(cat(others[0],
                               " in 4 bits is not in this version: it is stored transposed, or its "
                               "elements are no multiple of ",
                               kernels::kFourBitBlock));
  }
  if (!model.parallel_plan().expert_modules.empty()) {
    throw UnsupportedError("a model with experts in 4 bits is not in this version");
  }
  const auto layers = layers_under_head(model);
  tensor::KeyMap parts;
  std::map<std::string, std::vector<int64_t>> rows;
  std::map<std::string, int64_t> ends;
  for (const tensor::ParameterPart& part : model.key_map()) {
    if (!layers.contains(part.parameter)) continue;
    const int64_t num_bytes =
        kernels::four_bit_bytes(c10::multiply_integers(part.shape), quantization.format);
    int64_t& end = ends[part.parameter];
    parts.push_back({cat(part.name, kFourBit), part.parameter, end, {num_bytes}});
    rows[part.parameter].push_back(part.shape[0]);
    end += num_bytes;
  }
  for (const auto& [parameter, layer] : layers) {
    if (!layer->loras().empty() && layer->loras()[0]->options().has_magnitude) {
      throw UnsupportedError("DoRA on weights in 4 bits is not in this version");
    }
  }
  model.replace_parts(parts);
  for (const auto& [parameter, layer] : layers) {
    layer->hold_in_four_bits({quantization.format, quantization.compute_dtype, rows[parameter]});
  }
}

std::vector<QuantizedMatrix> quantized_matrices(const models::CausalLM& model) {
  std::map<std::string, nn::Linear*> layers;
  for (const auto& [parameter, layer] : layers_under_head(model)) {
    if (layer->four_bits() != nullptr) layers.emplace(parameter, layer);
  }
  std::vector<QuantizedMatrix> matrices;
  std::map<std::string, std::pair<size_t, int64_t>> places;  // matrices so far, their rows
  for (const tensor::ParameterPart& part : model.key_map()) {
    const auto layer = layers.find(part.parameter);
    if (layer == layers.end() || !is_quantized_tensor(part.name)) continue;
    auto& [index, row] = places[part.parameter];
    const nn::FourBitOptions& options = *layer->second->four_bits();
    const int64_t count = options.rows[index++];
    const std::string name = without_suffix(part.name, kFourBit);
    const int64_t in = layer->second->options().in_features;
    matrices.push_back({name, part.name, {name, part.parameter, row, {count, in}}, options.format});
    row += count;
  }
  return matrices;
}

bool is_quantized_tensor(std::string_view name) {
  return name.ends_with(kFourBit);
}

int64_t fill_quantized(const models::CausalLM& model, std::span<const tensor::FlatShard> shards,
                       const std::function<at::Tensor(const QuantizedMatrix&)>& read) {
  const at::NoGradGuard no_grad;
  struct Place {
    const tensor::FlatShard* shard;
    const tensor::FlatSegment* segment;
  };
  std::map<std::string, std::vector<Place>> places;
  for (const tensor::FlatShard& shard : shards) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      if (is_quantized_tensor(segment.fqn) && segment.spec.numel() > 0) {
        places[segment.fqn].push_back({&shard, &segment});
      }
    }
  }
  int64_t count = 0;
  for (const QuantizedMatrix& matrix : quantized_matrices(model)) {
    const auto held = places.find(matrix.segment);
    if (held == places.end()) continue;
    const at::Tensor values = read(matrix);
    if (!values.defined()) continue;
    AM_CHECK(values.sizes() == matrix.floats.shape, matrix.name);
    const at::Tensor bytes = kernels::quantize_four_bit(values, matrix.format);
    for (const Place& place : held->second) {
      const tensor::ShardSpec& spec = place.segment->spec;
      place.shard->view(*place.segment).copy_(bytes.narrow(0, spec.flat_begin, spec.numel()));
    }
    ++count;
  }
  return count;
}

int64_t num_elements(const models::CausalLM& model) {
  int64_t sum = 0;
  for (const auto& keys : {base_keys(model), adapter_keys(model)}) {
    for (const tensor::ParameterPart& part : keys) sum += c10::multiply_integers(part.shape);
  }
  return sum;
}

}  // namespace automodel::peft
