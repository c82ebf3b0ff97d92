#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/json.h"
#include "tensor/shard_spec.h"

namespace automodel::checkpoint {

/// Values of mxfp4 under one scale; two of them are packed into a byte.
inline constexpr int64_t kMxfp4Group = 32;

/// How a config.json says that weights are stored.
struct Quantization {
  enum class Method {
    kFp8,         ///< `fp8`: float8 weights, a scale for each block or for a whole tensor
    kMxfp4,       ///< `mxfp4`: experts in 4-bit floats, a power of two for 32 of them
    kCompressed,  ///< `compressed-tensors`, format `float-quantized`: as fp8, other names
  };
  Method method = Method::kFp8;
  /// Rows and columns of a weight under one scale; 0 when there are no blocks.
  int64_t block_rows = 0;
  int64_t block_cols = 0;
};

/// What a config.json says in `quantization_config`; nullopt when its weights are plain floats.
/// Throws UnsupportedError for methods that are not read, naming those that are, and InputError for
/// values of the wrong kind.
std::optional<Quantization> read_quantization(const Json& config);

/// Whether a tensor of a quantized folder holds scales, of weights or of activations, by its name.
bool is_scale_name(std::string_view name);

/// The method's name in a config.json.
const char* method_name(Quantization::Method method);

/// A tensor of floats that a folder holds in fewer bits: what it would be, and what it is.
struct QuantizedTensor {
  /// A stored tensor and the folder's file that it is in.
  struct Part {
    size_t file = 0;
    const TensorEntry* entry = nullptr;
  };
  TensorEntry values;  ///< as it would be without quantization, at byte 0 of no file
  Part weight;         ///< float8 in the shape of the values; uint8 [E, out, in / 32, 16] for mxfp4
  Part scales;
  Quantization::Method method = Quantization::Method::kFp8;
  int64_t block_rows = 0;  ///< of the weight under one scale, float8 only
  int64_t block_cols = 0;
};

/// Finds the quantized tensors of a folder. `parts` are all its stored tensors by name: those that
/// become part of a quantized one, and scales of activations, which nothing here uses, are taken
/// out. `dtype` becomes that of the values. `paths` are those of the files, for errors. Throws
/// InputError with tensor and file for scales that are missing or of the wrong shape or dtype.
std::map<std::string, QuantizedTensor> find_quantized(
    const Quantization& quantization, std::map<std::string, QuantizedTensor::Part>& parts,
    at::ScalarType dtype, const std::vector<std::string>& paths);

/// Reads a shard of a quantized tensor's values: `out` is one-dimensional with spec.numel()
/// elements on any device; values are computed in float32 and rounded to its dtype, as transformers
/// does. The scales of compressed-tensors are rounded to it first, as its library does. Of mxfp4,
/// the packed bytes of one expert are in memory at a time; of float8, a piece. Throws InputError.
void read_quantized(const QuantizedTensor& tensor, const SafetensorsFile& weight_file,
                    const SafetensorsFile& scale_file, const tensor::ShardSpec& spec,
                    at::Tensor out);

}  // namespace automodel::checkpoint
