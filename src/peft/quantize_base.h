#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/causal_lm.h"
#include "nn/layers.h"
#include "tensor/shard_spec.h"

namespace automodel::peft {

/// The format of the frozen weights under adapters: QLoRA, Dettmers et al. 2023.
struct BaseQuantization {
  kernels::FourBitFormat format;
  at::ScalarType compute_dtype = at::kBFloat16;
};

/// A weight of the Hugging Face model that is held in 4 bits.
struct QuantizedMatrix {
  std::string name;              ///< "model.layers.0.self_attn.q_proj.weight"
  std::string segment;           ///< name of its bytes among an engine's segments
  tensor::ParameterPart floats;  ///< its part of the key map before it was quantized
  kernels::FourBitFormat format;
};

/// The linear layers whose weights cannot be held in 4 bits: they are stored transposed, or their
/// number of elements is not a multiple of kFourBitBlock.
std::vector<std::string> unquantizable_layers(const models::CausalLM& model);

/// Makes the linear layers of a model, except the head, hold their weights in 4 bits, as
/// transformers does. The model is unsplit; its parameters are frozen and have no memory yet. Its
/// key_map() then has the bytes of each matrix, NAME.weight.four_bit, instead of NAME.weight.
/// Throws UnsupportedError for an unquantizable layer, experts or DoRA.
void quantize_base(models::CausalLM& model, const BaseQuantization& quantization);

/// The weights of a model that are held in 4 bits, in the order of its key map.
std::vector<QuantizedMatrix> quantized_matrices(const models::CausalLM& model);

/// Whether a tensor of a key map holds the bytes of a quantized weight.
bool is_quantized_tensor(std::string_view name);

/// Fills quantized weights: `read` returns a whole matrix of floats in the format's dtype, or an
/// undefined tensor for one to skip. One matrix is in memory at a time. Every rank reads all
/// matrices of which it holds a part, whole, because a matrix's bytes include the mean of all its
/// factors. Returns the number of matrices filled.
int64_t fill_quantized(const models::CausalLM& model, std::span<const tensor::FlatShard> shards,
                       const std::function<at::Tensor(const QuantizedMatrix&)>& read);

/// Elements of all tensors of the Hugging Face model, adapters included.
int64_t num_elements(const models::CausalLM& model);

}  // namespace automodel::peft
