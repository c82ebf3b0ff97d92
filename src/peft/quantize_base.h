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

/// How the frozen weights under adapters are held: QLoRA, Dettmers et al. 2023.
struct BaseQuantization {
  kernels::FourBitFormat format;
  at::ScalarType compute_dtype = at::kBFloat16;
};

/// A weight of the Hugging Face model that is held in 4 bits.
struct QuantizedMatrix {
  std::string name;              ///< "model.layers.0.self_attn.q_proj.weight"
  std::string segment;           ///< name of its bytes among an engine's segments
  tensor::ParameterPart floats;  ///< its part of the model's key map before
  kernels::FourBitFormat format;
};

/// The linear layers whose weights cannot be held in 4 bits: they are stored transposed, or the
/// number of their elements is no multiple of kFourBitBlock.
std::vector<std::string> unquantizable_layers(const models::CausalLM& model);

/// Has the linear layers of a model hold their weights in 4 bits, as transformers does: all but the
/// head. The model is whole, its parameters are frozen and have no memory yet; its key_map() then
/// has the bytes of each matrix, NAME.weight.four_bit, instead of NAME.weight. UnsupportedError
/// with an unquantizable layer, experts or DoRA.
void quantize_base(models::CausalLM& model, const BaseQuantization& quantization);

/// The weights of a model that are held in 4 bits, in the order of its key map.
std::vector<QuantizedMatrix> quantized_matrices(const models::CausalLM& model);

/// Whether a tensor of a key map is the bytes of a quantized weight.
bool is_quantized_tensor(std::string_view name);

/// Gives quantized weights their values: `read` makes a whole matrix of floats in the format's
/// dtype, and may return an undefined tensor for one to be left alone. One matrix is in memory at a
/// time. Every rank reads the matrices that it holds a part of, because the mean of all factors of
/// a matrix is among its bytes. Returns how many were filled.
int64_t fill_quantized(const models::CausalLM& model, std::span<const tensor::FlatShard> shards,
                       const std::function<at::Tensor(const QuantizedMatrix&)>& read);

/// Elements of all tensors of the Hugging Face model, adapters included.
int64_t num_elements(const models::CausalLM& model);

}  // namespace automodel::peft
