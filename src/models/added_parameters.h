#pragma once

#include <torch/nn/module.h>

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

  /// The initial values of all of the model's parameters: those that came with added ones, and
  /// `rule_of(name)` of the others.
  template <typename RuleOf>
  std::vector<ParameterInit> initial_values(const torch::nn::Module& model,
                                            const RuleOf& rule_of) const {
    std::vector<ParameterInit> out;
    for (const auto& item : model.named_parameters()) {
      const ParameterInit* const added = find(item.key());
      out.push_back(added != nullptr ? *added : ParameterInit{item.key(), rule_of(item.key())});
    }
    return out;
  }

 private:
  std::vector<ParameterInit> values_;
};

/// Puts `parts` in place of the key map's parts of the same parameters (CausalLM::replace_parts).
void replace_parts(tensor::KeyMap& keys, const tensor::KeyMap& parts);

}  // namespace automodel::models
