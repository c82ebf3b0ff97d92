#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <vector>

namespace automodel::datasets {

/// numpy.random.default_rng(seed).permutation(n), with which Hugging Face datasets shuffle rows.
/// `n` and `seed` are at least 0.
std::vector<int64_t> numpy_permutation(int64_t n, uint64_t seed);

/// Numbers of [0, 1), one a call: those of numpy.random.default_rng(seed).random().
std::function<double()> numpy_uniform(uint64_t seed);

/// numpy.random.RandomState(seed), with which Megatron orders documents and samples.
class NumpyRandomState final {
 public:
  explicit NumpyRandomState(uint32_t seed) : random_(seed) {}

  void shuffle(std::span<int32_t> values);
  void shuffle(std::span<int64_t> values);

 private:
  std::mt19937 random_;
};

}  // namespace automodel::datasets
