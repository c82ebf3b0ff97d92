#include "tensor/random.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace automodel::tensor {

namespace {

using Words = std::array<uint32_t, 4>;

/// One block of four 32-bit words of Philox-4x32-10.
Words philox(const RandomKey& key, uint64_t block) {
  Words counter = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                   static_cast<uint32_t>(key.stream), static_cast<uint32_t>(key.stream >> 32)};
  uint32_t k0 = static_cast<uint32_t>(key.seed);
  uint32_t k1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return counter;
}

float to_unit(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

/// Standard normal from two words (Box and Muller); element parity picks cosine or sine.
float to_normal(uint32_t radius_word, uint32_t angle_word, bool use_sine) {
  const double u = (static_cast<double>(radius_word) + 0.5) * 0x1p-32;
  const double angle = 2.0 * std::numbers::pi * static_cast<double>(angle_word) * 0x1p-32;
  const double radius = std::sqrt(-2.0 * std::log(u));
  return static_cast<float>(radius * (use_sine ? std::sin(angle) : std::cos(angle)));
}

/// Normal number i of a stream: blocks of four words make four normals. `attempt` gives fresh
/// blocks for rejected numbers.
float normal_at(const RandomKey& key, uint64_t index, uint64_t attempt) {
  const RandomKey attempt_key(key.seed, key.stream + attempt * 0x9E3779B97F4A7C15ull);
  const Words words = philox(attempt_key, index / 4);
  const size_t pair = index % 4 / 2 * 2;
  return to_normal(words[pair], words[pair + 1], index % 2 == 1);
}

float truncated_normal_at(const RandomKey& key, uint64_t index, float limit) {
  for (uint64_t attempt = 0; attempt < 256; ++attempt) {
    const float value = normal_at(key, index, attempt);
    if (std::abs(value) <= limit) return value;
  }
  return 0.0f;
}

uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  }
  return hash;
}

float draw(const InitRule& rule, const RandomKey& key, uint64_t index) {
  switch (rule.kind) {
    case InitRule::Kind::kConstant:
      return static_cast<float>(rule.a);
    case InitRule::Kind::kNormal:
      return static_cast<float>(rule.a + rule.b * normal_at(key, index, 0));
    case InitRule::Kind::kTruncatedNormal: {
      const auto limit = static_cast<float>(rule.cut / rule.b);
      return static_cast<float>(rule.a + rule.b * truncated_normal_at(key, index, limit));
    }
    case InitRule::Kind::kUniform:
      return static_cast<float>(rule.a + (rule.b - rule.a) * random_uniform(key, index));
    case InitRule::Kind::kLogUniform:
      return static_cast<float>(std::log(rule.a + (rule.b - rule.a) * random_uniform(key, index)));
    case InitRule::Kind::kLogCount:
      return static_cast<float>(std::log1p(static_cast<double>(index)));
    case InitRule::Kind::kSoftplusOf: {
      const double low = std::log(rule.a);
      const double drawn = std::exp(low + (std::log(rule.b) - low) * random_uniform(key, index));
      const double value = std::max(drawn, rule.cut);
      return static_cast<float>(value + std::log(-std::expm1(-value)));
    }
  }
  AM_CHECK(false);
}

}  // namespace

RandomKey::RandomKey(uint64_t seed, std::string_view name) : seed(seed), stream(hash_name(name)) {}

float random_uniform(const RandomKey& key, uint64_t index) {
  return to_unit(philox(key, index / 4)[index % 4]);
}

void fill_initial_values(at::Tensor out, const ShardSpec& spec, const InitRule& rule,
                         const RandomKey& key) {
  AM_CHECK(out.dim() == 1 && out.numel() == spec.numel());
  at::Tensor values = at::empty({spec.numel()}, at::TensorOptions().dtype(at::kFloat));
  float* data = values.data_ptr<float>();
  const int64_t row_size = spec.global_shape.empty() || spec.global_shape[0] == 0
                               ? 1
                               : spec.global_numel() / spec.global_shape[0];
  for (const ShardRun& run : shard_runs(spec)) {
    at::parallel_for(0, run.numel, 1 << 14, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t global = run.global + i;
        const bool is_zero = rule.zero_row >= 0 && global / row_size == rule.zero_row;
        data[run.local + i] = is_zero ? 0.0f : draw(rule, key, static_cast<uint64_t>(global));
      }
    });
  }
  out.copy_(values);
}

namespace {

/// out[i] = of_kept(whether element first + i is kept), four elements of each block of the stream.
template <typename T, typename OfKept>
at::Tensor drop_out(const RandomKey& key, uint64_t first, at::Tensor out, double p,
                    const OfKept& of_kept) {
  T* data = out.mutable_data_ptr<T>();
  const auto threshold = static_cast<float>(p);
  at::parallel_for(0, out.numel(), 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      const uint64_t index = first + static_cast<uint64_t>(i);
      const Words words = philox(key, index / 4);
      for (uint64_t word = index % 4; word < 4 && i < end; ++word, ++i) {
        data[i] = of_kept(to_unit(words[word]) >= threshold);
      }
    }
  });
  return out;
}

}  // namespace

at::Tensor dropout_mask(const RandomKey& key, uint64_t first, int64_t numel, double p) {
  const auto scale = static_cast<float>(1.0 / (1.0 - p));
  return drop_out<float>(key, first, at::empty({numel}, at::TensorOptions().dtype(at::kFloat)), p,
                         [scale](bool is_kept) { return is_kept ? scale : 0.0f; });
}

at::Tensor dropout_kept(const RandomKey& key, uint64_t first, int64_t numel, double p) {
  return drop_out<bool>(key, first, at::empty({numel}, at::TensorOptions().dtype(at::kBool)), p,
                        [](bool is_kept) { return is_kept; });
}

}  // namespace automodel::tensor
