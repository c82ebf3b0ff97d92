#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace automodel::datasets {

/// Python's random.Random(seed), with which upstream orders the files of NanogptDataset.
class PythonRandom final {
 public:
  explicit PythonRandom(uint32_t seed);

  void shuffle(std::span<int64_t> values);

 private:
  static constexpr size_t kNumWords = 624;  ///< MT19937's

  uint32_t next();
  void refill();
  uint32_t below(uint32_t bound);

  std::array<uint32_t, kNumWords> words_ = {};
  size_t at_ = kNumWords;  ///< the next word; kNumWords: none is left
};

}  // namespace automodel::datasets
