#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace automodel::datasets {

/// Python's random.Random(seed), with which upstream orders the files of NanogptDataset and makes
/// sentences.
class PythonRandom final {
 public:
  explicit PythonRandom(uint32_t seed);

  void shuffle(std::span<int64_t> values);
  /// sample(range(num_values), num_chosen): different numbers in the order in which they are drawn;
  /// num_chosen is at most num_values, which is less than 2^32 - 1.
  std::vector<int64_t> sample(int64_t num_values, int64_t num_chosen);
  /// randint(low, high): a whole number from `low` to `high`, both included, which are less than
  /// 2^32 - 1 apart.
  int64_t between(int64_t low, int64_t high);
  /// random(): a number in [0, 1) of 53 bits.
  double uniform();
  /// A normally distributed number; every second call draws none.
  double gauss(double mean, double deviation);

 private:
  static constexpr size_t kNumWords = 624;  ///< MT19937's

  uint32_t next();
  void refill();
  uint32_t below(uint32_t bound);

  std::array<uint32_t, kNumWords> words_ = {};
  size_t at_ = kNumWords;  ///< the next word; kNumWords: none is left
  std::optional<double> next_normal_;
};

}  // namespace automodel::datasets
