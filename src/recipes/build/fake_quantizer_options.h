#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/causal_lm.h"
#include "nn/fake_quantizer.h"
#include "recipes/read/qat_section.h"

namespace automodel::recipes {

/// What a model's quantizer does. The section has been checked.
nn::FakeQuantizer::Options quantizer_options(const QatSection& section);

/// The linear layers of a model, its head among them, by what quantization-aware training makes of
/// them.
struct RoundedLayers {
  int64_t unit = 0;                 ///< elements that a row must be a multiple of
  std::vector<std::string> odd;     ///< whose rows are no multiple
  std::vector<std::string> biased;  ///< with a bias, which int4_weight_only does not take
  int64_t num_layers = 0;           ///< these and all others
};

RoundedLayers rounded_layers(const models::CausalLM& model, const QatSection& section);

}  // namespace automodel::recipes
