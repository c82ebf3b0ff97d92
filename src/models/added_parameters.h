#pragma once

#include <string>
#include <vector>

#include "models/causal_lm.h"
#include "tensor/key_map.h"

namespace automodel::models {

/// Parameters that a model's linear layers got after it was built (adapters), for
/// CausalLM::add_parameters().
class AddedParameters final {
 public:
  /// Puts `parts` into the key map, each behind the other parts of its layer.
  void add(tensor::KeyMap& keys, const tensor::KeyMap& parts,
           const std::vector<ParameterInit>& values);

  /// A parameter's initial values; null for one that was not added.
  const ParameterInit* find(const std::string& parameter) const;

 private:
  std::vector<ParameterInit> values_;
};

/// Puts `parts` in place of the key map's parts of the same parameters (CausalLM::replace_parts).
void replace_parts(tensor::KeyMap& keys, const tensor::KeyMap& parts);

}  // namespace automodel::models
