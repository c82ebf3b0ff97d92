#pragma once

#include <string_view>

#include "models/causal_lm.h"
#include "tensor/key_map.h"

namespace automodel::peft {

/// Whether a tensor of a key map belongs to an adapter.
bool is_adapter_tensor(std::string_view name);

/// The parts of a model's key map that belong (or do not belong) to adapters. Weights in 4 bits
/// appear as the floats from which they are made.
tensor::KeyMap base_keys(const models::CausalLM& model);
tensor::KeyMap adapter_keys(const models::CausalLM& model);

/// The parts of a model's key map that an adapter's folder holds: adapters, and the modules that
/// are trained whole beside them.
tensor::KeyMap folder_keys(const models::CausalLM& model);

/// Whether the head of a model with this configuration is its embedding.
bool has_tied_head(const Json& hf_config);

/// The embedding's tensor where that is the head too and is trained whole beside adapters; else "".
std::string tied_saved_embedding(const models::CausalLM& model);

}  // namespace automodel::peft
