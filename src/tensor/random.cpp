#include "tensor/random.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <atomic>
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

/// Four numbers of a stream, those of a block of four words.
using Numbers = std::array<float, 4>;

/// Standard normal numbers (Box and Muller): the cosine's and the sine's of each two words.
Numbers normals_of(const RandomKey& key, uint64_t block) {
  const Words words = philox(key, block);
  Numbers numbers;
  for (size_t pair = 0; pair < 4; pair += 2) {
    const double u = (static_cast<double>(words[pair]) + 0.5) * 0x1p-32;
    const double angle = 2.0 * std::numbers::pi * static_cast<double>(words[pair + 1]) * 0x1p-32;
    const double radius = std::sqrt(-2.0 * std::log(u));
    numbers[pair] = static_cast<float>(radius * std::cos(angle));
    numbers[pair + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return numbers;
}

/// The first of the normal numbers i of a stream and of streams beside it that is within the limit.
float truncated_normal_at(const RandomKey& key, uint64_t index, float limit) {
  for (uint64_t attempt = 0; attempt < 256; ++attempt) {
    const RandomKey attempt_key(key.seed, key.stream + attempt * 0x9E3779B97F4A7C15ull);
    const float value = normals_of(attempt_key, index / 4)[index % 4];
    if (std::abs(value) <= limit) return value;
  }
  return 0.0f;
}

Numbers uniforms_of(const RandomKey& key, uint64_t block) {
  const Words words = philox(key, block);
  return {to_unit(words[0]), to_unit(words[1]), to_unit(words[2]), to_unit(words[3])};
}

uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  }
  return hash;
}

/// A tensor's elements 4 * block to 4 * block + 3: those that come from the same four words.
Numbers draw_block(const InitRule& rule, const RandomKey& key, uint64_t block) {
  const auto each = [](Numbers numbers, const auto& function) {
    for (float& number : numbers) number = static_cast<float>(function(number));
    return numbers;
  };
  switch (rule.kind) {
    case InitRule::Kind::kConstant:
      return each({}, [&](float) { return rule.a; });
    case InitRule::Kind::kNormal:
      return each(normals_of(key, block), [&](float drawn) { return rule.a + rule.b * drawn; });
    case InitRule::Kind::kTruncatedNormal: {
      const auto limit = static_cast<float>(rule.cut / rule.b);
      Numbers normals = normals_of(key, block);
      for (size_t i = 0; i < 4; ++i) {
        if (!(std::abs(normals[i]) <= limit)) {
          normals[i] = truncated_normal_at(key, 4 * block + i, limit);
        }
      }
      return each(normals, [&](float drawn) { return rule.a + rule.b * drawn; });
    }
    case InitRule::Kind::kUniform:
      return each(uniforms_of(key, block),
                  [&](float drawn) { return rule.a + (rule.b - rule.a) * drawn; });
    case InitRule::Kind::kLogUniform:
      return each(uniforms_of(key, block),
                  [&](float drawn) { return std::log(rule.a + (rule.b - rule.a) * drawn); });
    case InitRule::Kind::kLogCount: {
      Numbers numbers;
      for (size_t i = 0; i < 4; ++i) {
        numbers[i] = static_cast<float>(std::log1p(static_cast<double>(4 * block + i)));
      }
      return numbers;
    }
    case InitRule::Kind::kSoftplusOf: {
      const double low = std::log(rule.a);
      return each(uniforms_of(key, block), [&](float drawn) {
        const double value = std::max(std::exp(low + (std::log(rule.b) - low) * drawn), rule.cut);
        return value + std::log(-std::expm1(-value));
      });
    }
  }
  AM_CHECK(false);
}

}  // namespace

static std::atomic<int64_t> named_keys = 0;

RandomKey::RandomKey(uint64_t seed, std::string_view name) : seed(seed), stream(hash_name(name)) {
  ++named_keys;
}

int64_t num_named_keys() {
  return named_keys;
}

float random_uniform(const RandomKey& key, uint64_t index) {
  return uniforms_of(key, index / 4)[index % 4];
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
      for (int64_t i = begin; i < end;) {
        const auto first = static_cast<uint64_t>(run.global + i);
        const Numbers numbers = draw_block(rule, key, first / 4);
        for (uint64_t word = first % 4; word < 4 && i < end; ++word, ++i) {
          const bool is_zero = rule.zero_row >= 0 && (run.global + i) / row_size == rule.zero_row;
          data[run.local + i] = is_zero ? 0.0f : numbers[word];
        }
      }
    });
  }
  out.copy_(values);
}

namespace {

/// out[i] = of_unit(element first + i of the stream), four elements of each of its blocks.
template <typename T, typename OfUnit>
at::Tensor filled(const RandomKey& key, uint64_t first, at::Tensor out, const OfUnit& of_unit) {
  T* data = out.mutable_data_ptr<T>();
  at::parallel_for(0, out.numel(), 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      const uint64_t index = first + static_cast<uint64_t>(i);
      const Words words = philox(key, index / 4);
      for (uint64_t word = index % 4; word < 4 && i < end; ++word, ++i) {
        data[i] = of_unit(to_unit(words[word]));
      }
    }
  });
  return out;
}

at::Tensor empty_on_cpu(int64_t numel, at::ScalarType dtype) {
  return at::empty({numel}, at::TensorOptions().dtype(dtype));
}

}  // namespace

at::Tensor random_uniforms(const RandomKey& key, uint64_t first, int64_t numel) {
  return filled<float>(key, first, empty_on_cpu(numel, at::kFloat),
                       [](float unit) { return unit; });
}

at::Tensor dropout_kept(const RandomKey& key, uint64_t first, int64_t numel, double p) {
  const auto threshold = static_cast<float>(p);
  return filled<bool>(key, first, empty_on_cpu(numel, at::kBool),
                      [=](float unit) { return unit >= threshold; });
}

}  // namespace automodel::tensor
