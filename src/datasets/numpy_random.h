#pragma once

#include <cstdint>
#include <vector>

namespace automodel::datasets {

/// numpy.random.default_rng(seed).permutation(n), by which Hugging Face datasets shuffle rows. `n`
/// and `seed` are at least 0.
std::vector<int64_t> numpy_permutation(int64_t n, uint64_t seed);

}  // namespace automodel::datasets
