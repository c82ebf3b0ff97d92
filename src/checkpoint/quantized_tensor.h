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
    kFp8,         ///< `fp8`: float8 weights, with a scale per block or tensor
    kMxfp4,       ///< `mxfp4`: experts in 4-bit floats, 32 of them sharing a power of two
    kCompressed,  ///< `compressed-tensors`, format `float-quantized`: fp8 under other names
  };
  Method method = Method::kFp8;
  /// Rows and columns of a weight that share a scale; 0 without blocks.
  int64_t block_rows = 0;
  int64_t block_cols = 0;
};

/// The `quantization_config` of a config.json; nullopt when its weights are plain floats. Throws
/// UnsupportedError, naming the methods that can be read, for others, and InputError for values of
/// the wrong kind.
std::optional<Quantization> read_quantization(const Json& config);

/// Whether a tensor's name says that it holds scales, of weights or of activations.
bool is_scale_name(std::string_view name);

/// The method's name in a config.json.
const char* method_name(Quantization::Method method);

/// A tensor of floats that a folder holds in fewer bits: its shape as floats, and its stored parts.
struct QuantizedTensor {
  /// A stored tensor and the file that holds it.
  struct Part {
    size_t file = 0;
    const TensorEntry* entry = nullptr;
  };
  TensorEntry values;  ///< its entry as floats; has no bytes in any file
  Part weight;         ///< float8 in the shape of the values; uint8 [E, out, in / 32, 16] for mxfp4
  Part scales;
  Quantization::Method method = Quantization::Method::kFp8;
  int64_t block_rows = 0;  ///< of the weight that share a scale, float8 only
  int64_t block_cols = 0;
};

/// Finds the quantized tensors of a folder. `parts`: all its stored tensors by name; those that
/// become parts of a quantized one, and scales of activations (which are not used), are removed
/// from it. `dtype`: the values' dtype. `paths`: the files' paths, for errors. Throws InputError
/// with tensor and file for scales that are missing or have the wrong shape or dtype.
std::map<std::string, QuantizedTensor> find_quantized(
    const Quantization& quantization, std::map<std::string, QuantizedTensor::Part>& parts,
    at::ScalarType dtype, const std::vector<std::string>& paths);

/// Reads a shard of a quantized tensor's values. `out` is one-dimensional with spec.numel()
/// elements on any device; values are computed in float32 and rounded to its dtype, as transformers
/// does. The scales of compressed-tensors are first rounded to that dtype, as its library does.
/// Holds the packed bytes of one expert (mxfp4) or of a piece (float8) in memory. Throws
/// InputError.
void read_quantized(const QuantizedTensor& tensor, const SafetensorsFile& weight_file,
                    const SafetensorsFile& scale_file, const tensor::ShardSpec& spec,
                    at::Tensor out);

}  // namespace automodel::checkpoint
