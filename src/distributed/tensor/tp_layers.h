#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "nn/layers.h"
#include "tensor/key_map.h"

namespace automodel::distributed {

/// A child by its name; null if there is none or `module` is null.
torch::nn::Module* child_of(const torch::nn::Module* module, const std::string& name);

/// "a.b" for "a.b.c"; "" for a name without a dot.
std::string parent_of(const std::string& name);

/// Whether a parameter belongs to a linear layer's adapters (nn/lora.h).
bool is_adapter(const std::string& parameter);

/// A module that holds parameters, and its names in the checkpoint.
struct TpLayer {
  std::string fqn;
  torch::nn::Module* module = nullptr;
  /// Hugging Face modules: q_proj, k_proj and v_proj; none where it has nothing but adapters.
  std::vector<std::string> hf_names;
  bool is_under_heads = false;  ///< its parent's heads may be split
};

/// The layers of a model, in the order of its key map.
std::vector<TpLayer> find_tp_layers(torch::nn::Module& root, const tensor::KeyMap& keys);

/// The number of output features of each of the layer's stacked matrices.
std::vector<int64_t> output_groups(const nn::Linear& linear);

}  // namespace automodel::distributed
