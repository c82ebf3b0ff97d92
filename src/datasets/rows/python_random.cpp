#include "datasets/rows/python_random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>
#include <unordered_set>
#include <utility>

namespace automodel::datasets {

/// MT19937's init_by_array with the seed as its one key, as CPython seeds with small integers.
PythonRandom::PythonRandom(uint32_t seed) {
  const auto mixed = [this](size_t i, uint32_t factor) {
    const uint32_t before = words_[i - 1];
    return words_[i] ^ ((before ^ (before >> 30)) * factor);
  };
  words_[0] = 19650218U;
  for (size_t i = 1; i < kNumWords; ++i) {
    words_[i] = 1812433253U * (words_[i - 1] ^ (words_[i - 1] >> 30)) + static_cast<uint32_t>(i);
  }
  size_t i = 1;
  const auto step = [&] {
    if (++i < kNumWords) return;
    words_[0] = words_[kNumWords - 1];
    i = 1;
  };
  for (size_t k = 0; k < kNumWords; ++k) {
    words_[i] = mixed(i, 1664525U) + seed;
    step();
  }
  for (size_t k = 0; k + 1 < kNumWords; ++k) {
    words_[i] = mixed(i, 1566083941U) - static_cast<uint32_t>(i);
    step();
  }
  words_[0] = 0x80000000U;
}

void PythonRandom::refill() {
  constexpr size_t kDistance = 397;
  for (size_t i = 0; i < kNumWords; ++i) {
    const uint32_t joined = (words_[i] & 0x80000000U) | (words_[(i + 1) % kNumWords] & 0x7fffffffU);
    words_[i] = words_[(i + kDistance) % kNumWords] ^ (joined >> 1) ^
                ((joined & 1U) != 0 ? 0x9908b0dfU : 0U);
  }
  at_ = 0;
}

uint32_t PythonRandom::next() {
  if (at_ == kNumWords) refill();
  uint32_t word = words_[at_++];
  word ^= word >> 11;
  word ^= (word << 7) & 0x9d2c5680U;
  word ^= (word << 15) & 0xefc60000U;
  return word ^ (word >> 18);
}

/// A number in [0, bound) by as many random bits as `bound` has, drawn until they are below it.
uint32_t PythonRandom::below(uint32_t bound) {
  const int unused = std::countl_zero(bound);
  uint32_t drawn = next() >> unused;
  while (drawn >= bound) drawn = next() >> unused;
  return drawn;
}

void PythonRandom::shuffle(std::span<int64_t> values) {
  for (size_t i = values.size(); i-- > 1;) {
    std::swap(values[i], values[below(static_cast<uint32_t>(i + 1))]);
  }
}

/// CPython draws from a list that loses what is drawn, unless the chosen ones are so few that
/// drawing anew what was drawn before takes less memory.
std::vector<int64_t> PythonRandom::sample(int64_t num_values, int64_t num_chosen) {
  constexpr int64_t kFew = 5;
  int64_t size_of_set = 21;
  if (num_chosen > kFew) {
    const double steps = std::ceil(std::log(static_cast<double>(num_chosen * 3)) / std::log(4.0));
    size_of_set += static_cast<int64_t>(std::pow(4.0, steps));
  }
  std::vector<int64_t> chosen;
  chosen.reserve(static_cast<size_t>(num_chosen));
  if (num_values <= size_of_set) {
    std::vector<int64_t> pool(static_cast<size_t>(num_values));
    std::iota(pool.begin(), pool.end(), 0);
    for (int64_t i = 0; i < num_chosen; ++i) {
      const uint32_t place = below(static_cast<uint32_t>(num_values - i));
      chosen.push_back(pool[place]);
      pool[place] = pool[static_cast<size_t>(num_values - i - 1)];
    }
    return chosen;
  }
  std::unordered_set<int64_t> known;
  while (std::ssize(chosen) < num_chosen) {
    const int64_t value = below(static_cast<uint32_t>(num_values));
    if (known.insert(value).second) chosen.push_back(value);
  }
  return chosen;
}

int64_t PythonRandom::between(int64_t low, int64_t high) {
  return low + below(static_cast<uint32_t>(high - low + 1));
}

double PythonRandom::uniform() {
  const uint32_t high = next() >> 5;
  const uint32_t low = next() >> 6;
  return (high * 0x1p26 + low) * 0x1p-53;
}

double PythonRandom::gauss(double mean, double deviation) {
  if (next_normal_) return mean + *std::exchange(next_normal_, std::nullopt) * deviation;
  const double angle = uniform() * (2.0 * std::numbers::pi);
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  next_normal_ = std::sin(angle) * radius;
  return mean + std::cos(angle) * radius * deviation;
}

}  // namespace automodel::datasets
