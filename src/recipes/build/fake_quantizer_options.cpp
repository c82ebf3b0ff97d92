#include "recipes/build/fake_quantizer_options.h"

#include <algorithm>

#include "nn/layers.h"
#include "tensor/dtype.h"

namespace automodel::recipes {

nn::FakeQuantizer::Options quantizer_options(const QatSection& section) {
  const bool rounds_inputs = section.config.quantizer_type == QuantizerType::kInt8DynactInt4Weight;
  const auto scale_dtype = tensor::parse_dtype(section.config.scales_precision);
  return {.format = {.weights = {.size = section.config.groupsize,
                                 .is_symmetric = rounds_inputs,
                                 .scale_dtype = scale_dtype.value_or(at::kBFloat16)},
                     .rounds_inputs = rounds_inputs},
          .takes_biases = rounds_inputs,
          .first_step = section.fake_quant_after_n_steps};
}

RoundedLayers rounded_layers(const models::CausalLM& model, const QatSection& section) {
  const QatConfig& config = section.config;
  const bool is_weight_only = config.quantizer_type == QuantizerType::kInt4WeightOnly;
  RoundedLayers layers;
  layers.unit =
      is_weight_only ? std::max(config.groupsize, 16 * config.inner_k_tiles) : config.groupsize;
  for (const auto& item : model.named_modules("", false)) {
    const auto* linear = dynamic_cast<const nn::Linear*>(item.value().get());
    if (linear == nullptr) continue;
    ++layers.num_layers;
    if (is_weight_only && linear->options().has_bias) {
      layers.biased.push_back(item.key());
    } else if (linear->options().in_features % layers.unit != 0) {
      layers.odd.push_back(item.key());
    }
  }
  const bool has_head = !model.parallel_plan().head.empty() || !model.class_head().empty();
  if (!has_head) {  // the embedding is the head
    ++layers.num_layers;
    if (model.dims().hidden_size % layers.unit != 0) layers.odd.emplace_back("the head");
  }
  return layers;
}

}  // namespace automodel::recipes
