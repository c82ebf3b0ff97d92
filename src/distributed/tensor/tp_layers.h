#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "nn/layers.h"
#include "tensor/key_map.h"

namespace automodel::distributed {

/// A child by its name; null for none, also of a null module.
torch::nn::Module* child_of(const torch::nn::Module* module, const std::string& name);

/// "a.b" of "a.b.c"; "" without a dot.
std::string parent_of(const std::string& name);

/// Whether a parameter is that of a linear layer's adapters (nn/lora.h).
bool is_adapter(const std::string& parameter);

/// A module that holds parameters, and what it is called in the checkpoint.
struct TpLayer {
  std::string fqn;
  torch::nn::Module* module = nullptr;
  std::vector<std::string> hf_names;  ///< of modules: q_proj, k_proj and v_proj
  bool is_under_heads = false;        ///< belongs to a module whose heads may be split
};

/// The layers of a model, in the order of its key map.
std::vector<TpLayer> find_tp_layers(torch::nn::Module& root, const tensor::KeyMap& keys);

/// Output features by matrix.
std::vector<int64_t> output_groups(const nn::Linear& linear);

}  // namespace automodel::distributed
