#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "tensor/shard_spec.h"

namespace automodel::tensor {

/// The key of a stream of random numbers: a seed and a name (a tensor's fqn, a dropout site).
/// Element i of a stream depends only on the key and i, so any rank can make any slice and values
/// do not depend on the mesh. Philox-4x32-10 (Salmon et al. 2011).
struct RandomKey {
  uint64_t seed = 0;
  uint64_t stream = 0;

  /// Counted by num_named_keys().
  RandomKey(uint64_t seed, std::string_view name);
  RandomKey(uint64_t seed, uint64_t stream) : seed(seed), stream(stream) {}
};

/// How many keys of names this process has made: work that makes one may draw other numbers when it
/// is done again.
int64_t num_named_keys();

/// How a parameter's initial values are drawn.
struct InitRule {
  enum class Kind {
    kConstant,
    kNormal,
    kTruncatedNormal,
    kUniform,
    kLogUniform,  ///< the logarithm of a uniform number
    kLogCount,    ///< log(1 + i) of element i
    kSoftplusOf,  ///< x such that log(1 + exp(x)) is log-uniform, and cut where it is less
  };
  Kind kind = Kind::kConstant;
  double a = 0;           ///< constant: the value; normal kinds: mean; uniform kinds: low
  double b = 0;           ///< normal kinds: standard deviation; uniform kinds: high
  double cut = 0;         ///< truncated normal: |x - mean| <= cut; kSoftplusOf: least
  int64_t zero_row = -1;  ///< a row of dim 0 that is zeroed afterwards (padding_idx)

  static InitRule constant(double value) { return {Kind::kConstant, value, 0, 0, -1}; }
  static InitRule normal(double mean, double deviation) {
    return {Kind::kNormal, mean, deviation, 0, -1};
  }
};

/// Fills `out` (one-dimensional, CPU or CUDA, any floating dtype, spec.numel() elements) with the
/// shard's slice of the tensor that `rule` and `key` define. Values are drawn in float32.
void fill_initial_values(at::Tensor out, const ShardSpec& spec, const InitRule& rule,
                         const RandomKey& key);

/// Element i of the stream as a float in [0, 1).
float random_uniform(const RandomKey& key, uint64_t index);

/// Elements first, first + 1, ... of the stream, as random_uniform: float32 [numel] on the CPU.
at::Tensor random_uniforms(const RandomKey& key, uint64_t first, int64_t numel);

/// Which of the elements first, first + 1, ... dropout keeps, those whose number in the stream is
/// at least p: bool [numel] on the CPU.
at::Tensor dropout_kept(const RandomKey& key, uint64_t first, int64_t numel, double p);

}  // namespace automodel::tensor
