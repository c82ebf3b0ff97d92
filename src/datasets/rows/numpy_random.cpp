#include "datasets/rows/numpy_random.h"

#include <array>
#include <bit>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace automodel::datasets {

namespace {

__extension__ using Uint128 = unsigned __int128;

/// numpy's SeedSequence of one integer: a pool of four words that its bits are mixed into.
class SeedSequence final {
 public:
  explicit SeedSequence(uint64_t seed) {
    const std::array<uint32_t, 2> words = {static_cast<uint32_t>(seed),
                                           static_cast<uint32_t>(seed >> 32)};
    for (size_t i = 0; i < pool_.size(); ++i) pool_[i] = hash(i < words.size() ? words[i] : 0);
    for (size_t from = 0; from < pool_.size(); ++from) {
      for (size_t to = 0; to < pool_.size(); ++to) {
        if (from != to) pool_[to] = mix(pool_[to], hash(pool_[from]));
      }
    }
  }

  /// The first four 64-bit words of its state.
  std::array<uint64_t, 4> state() const {
    std::array<uint64_t, 4> state = {};
    uint32_t constant = 0x8b51f9dd;
    for (size_t i = 0; i < 8; ++i) {
      uint32_t word = pool_[i % pool_.size()] ^ constant;
      constant *= 0x58f38ded;
      word *= constant;
      word ^= word >> 16;
      state[i / 2] |= static_cast<uint64_t>(word) << (32 * (i % 2));
    }
    return state;
  }

 private:
  uint32_t hash(uint32_t value) {
    value ^= constant_;
    constant_ *= 0x931e8875;
    value *= constant_;
    return value ^ (value >> 16);
  }

  static uint32_t mix(uint32_t x, uint32_t y) {
    const uint32_t result = 0xca01f9dd * x - 0x4973f715 * y;
    return result ^ (result >> 16);
  }

  std::array<uint32_t, 4> pool_ = {};
  uint32_t constant_ = 0x43b0d7e5;
};

/// PCG XSL RR 128/64 (O'Neill, "PCG: A family of simple fast space-efficient statistically good
/// algorithms"), seeded and halved as numpy's PCG64.
class Pcg64 final {
 public:
  explicit Pcg64(uint64_t seed) {
    const std::array<uint64_t, 4> words = SeedSequence(seed).state();
    increment_ = (join(words[2], words[3]) << 1) | 1;
    step();
    state_ += join(words[0], words[1]);
    step();
  }

  uint64_t next64() {
    step();
    const auto high = static_cast<uint64_t>(state_ >> 64);
    return std::rotr(high ^ static_cast<uint64_t>(state_), static_cast<int>(high >> 58));
  }

  /// The low half of a word, then its high half.
  uint32_t next32() {
    if (has_half_) {
      has_half_ = false;
      return half_;
    }
    const uint64_t word = next64();
    has_half_ = true;
    half_ = static_cast<uint32_t>(word >> 32);
    return static_cast<uint32_t>(word);
  }

 private:
  static Uint128 join(uint64_t high, uint64_t low) { return (Uint128{high} << 64) | low; }

  void step() { state_ = state_ * join(0x2360ED051FC65DA4, 0x4385DF649FCCF645) + increment_; }

  Uint128 state_ = 0;
  Uint128 increment_ = 0;
  bool has_half_ = false;
  uint32_t half_ = 0;
};

/// The Mersenne twister's words.
struct TwisterWords {
  std::mt19937& random;
  uint32_t next32() { return static_cast<uint32_t>(random()); }
  uint64_t next64() {
    const uint64_t high = next32();
    return (high << 32) | next32();
  }
};

/// An even choice of [0, last]: as many bits as it has, drawn until they are not larger.
template <typename Words>
uint64_t choose(Words& words, uint64_t last) {
  const uint64_t mask = std::bit_ceil(last + 1) - 1;
  uint64_t value = 0;
  do {
    value = (last <= UINT32_MAX ? words.next32() : words.next64()) & mask;
  } while (value > last);
  return value;
}

template <typename Words, typename T>
void shuffle_by(Words&& words, std::span<T> values) {
  for (size_t i = values.size(); i-- > 1;) std::swap(values[i], values[choose(words, i)]);
}

}  // namespace

std::function<double()> numpy_uniform(uint64_t seed) {
  return [random = Pcg64(seed)]() mutable {
    return static_cast<double>(random.next64() >> 11) * 0x1p-53;
  };
}

void NumpyRandomState::shuffle(std::span<int32_t> values) {
  shuffle_by(TwisterWords{random_}, values);
}

void NumpyRandomState::shuffle(std::span<int64_t> values) {
  shuffle_by(TwisterWords{random_}, values);
}

std::vector<int64_t> numpy_permutation(int64_t n, uint64_t seed) {
  AM_CHECK(n >= 0, "a permutation of ", n);
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  shuffle_by(Pcg64(seed), std::span(order));
  return order;
}

}  // namespace automodel::datasets
