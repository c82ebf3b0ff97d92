#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/key_map.h"

namespace automodel::peft {

/// How the adapters of stacked experts lie in an adapter's file. Of E experts an adapter here is
/// A [E, r, in] and B [E, out, r].
enum class ExpertLayout {
  kPeft19,  ///< PEFT 0.19.1 and later: lora_A [E r, in], lora_B [out, r E]
  kPeft18,  ///< before: lora_A holds B as [E r, out], lora_B holds A as [in, r E]
};

/// Whether a part of a key map is an adapter of stacked experts.
bool is_expert_adapter(const tensor::ParameterPart& part);

/// The factor as it is written (kPeft19): [E, r, in] to [E r, in], and [E, out, r] to [out, r E].
at::Tensor to_file(const at::Tensor& factor, bool is_a);

/// The name of the tensor in the file that holds a part's factor, and the factor that it holds.
std::string name_in_file(const tensor::ParameterPart& part, ExpertLayout layout);
std::vector<int64_t> shape_in_file(const tensor::ParameterPart& part, ExpertLayout layout);
at::Tensor from_file(const at::Tensor& stored, const tensor::ParameterPart& part,
                     ExpertLayout layout);

/// The parameters that adapters of experts belong to, as PEFT's `target_parameters` names them
/// ("mlp.experts.down_proj"), each once; `keys` are a model's adapters.
std::vector<std::string> target_parameters(const tensor::KeyMap& keys);

}  // namespace automodel::peft
