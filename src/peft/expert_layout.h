#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.h"
#include "tensor/key_map.h"

namespace automodel::peft {

/// How the adapters of stacked experts are stored in an adapter's file. In the model an adapter of
/// E experts is A [E, r, in] and B [E, out, r].
enum class ExpertLayout {
  kPeft19,  ///< PEFT 0.19.1 and later: lora_A [E r, in], lora_B [out, r E]
  kPeft18,  ///< earlier: lora_A holds B as [E r, out], lora_B holds A as [in, r E]; later too of
            ///< families that exchange factors (Llama 4)
};

/// Whether a part of a key map belongs to an adapter of stacked experts.
bool is_expert_adapter(const tensor::ParameterPart& part);

/// The layout of an adapter that PEFT 0.19.1 makes (or an earlier one does: `is_earlier`) of
/// experts of the family of `hf_config`.
ExpertLayout layout_of_peft(const Json& hf_config, bool is_earlier = false);

/// A part's factor, [E, r, in] or [E, out, r], as `layout` stores it.
at::Tensor to_file(const at::Tensor& factor, const tensor::ParameterPart& part,
                   ExpertLayout layout);

/// The name of the tensor in the file that holds a part's factor.
std::string name_in_file(const tensor::ParameterPart& part, ExpertLayout layout);
std::vector<int64_t> shape_in_file(const tensor::ParameterPart& part, ExpertLayout layout);
at::Tensor from_file(const at::Tensor& stored, const tensor::ParameterPart& part,
                     ExpertLayout layout);

/// The parameters that experts' adapters change, named as in PEFT's `target_parameters`
/// ("mlp.experts.down_proj"), without repetition; `keys` are a model's adapters.
std::vector<std::string> target_parameters(const tensor::KeyMap& keys);

}  // namespace automodel::peft
