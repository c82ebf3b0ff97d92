#include "comm/shared_memory/reduce.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <bit>

namespace automodel::comm {

namespace {

constexpr int64_t kBlock = 1024;

/// bfloat16's bits; conversions without branches, so that loops become vectors.
struct Bfloat16Bits {
  uint16_t bits;
};

float widen(Bfloat16Bits value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}
template <typename T>
T widen(T value) {
  return value;
}

template <typename T>
struct Narrow {
  static T from(T value) { return value; }
};
template <>
struct Narrow<Bfloat16Bits> {
  /// To the nearest, ties to even; NaN stays NaN.
  static Bfloat16Bits from(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
    return {static_cast<uint16_t>(is_nan ? 0x7fc0U : rounded)};
  }
};

struct Sum {
  template <typename A>
  static A combine(A a, A b) {
    return a + b;
  }
  template <typename A>
  static A finish(A a, int64_t) {
    return a;
  }
};
struct Average {
  template <typename A>
  static A combine(A a, A b) {
    return a + b;
  }
  template <typename A>
  static A finish(A a, int64_t num_sources) {
    return a / static_cast<A>(num_sources);
  }
};
// NaN wins, as in at::max.
struct Largest {
  template <typename A>
  static A combine(A a, A b) {
    return a > b || a != a ? a : b;
  }
  template <typename A>
  static A finish(A a, int64_t) {
    return a;
  }
};
struct Smallest {
  template <typename A>
  static A combine(A a, A b) {
    return a < b || a != a ? a : b;
  }
  template <typename A>
  static A finish(A a, int64_t) {
    return a;
  }
};

template <typename T, typename Op>
void reduce_two(T* out, const T* a, const T* b, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    out[i] = Narrow<T>::from(Op::finish(Op::combine(widen(a[i]), widen(b[i])), 2));
  }
}

template <typename T, typename Op>
void reduce_many(T* out, std::span<const std::byte* const> sources, int64_t count) {
  using Accumulator = decltype(widen(T{}));
  std::array<Accumulator, kBlock> sums;
  const auto num_sources = static_cast<int64_t>(sources.size());
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t num = std::min(kBlock, count - begin);
    const T* first = reinterpret_cast<const T*>(sources[0]) + begin;
    Accumulator* sum = sums.data();
    for (int64_t i = 0; i < num; ++i) sum[i] = widen(first[i]);
    for (size_t k = 1; k < sources.size(); ++k) {
      const T* source = reinterpret_cast<const T*>(sources[k]) + begin;
      for (int64_t i = 0; i < num; ++i) sum[i] = Op::combine(sum[i], widen(source[i]));
    }
    for (int64_t i = 0; i < num; ++i) {
      out[begin + i] = Narrow<T>::from(Op::finish(sum[i], num_sources));
    }
  }
}

template <typename T, typename Op>
void reduce_with(std::byte* out, std::span<const std::byte* const> sources, int64_t count) {
  if (sources.size() == 2) {
    reduce_two<T, Op>(reinterpret_cast<T*>(out), reinterpret_cast<const T*>(sources[0]),
                      reinterpret_cast<const T*>(sources[1]), count);
  } else {
    reduce_many<T, Op>(reinterpret_cast<T*>(out), sources, count);
  }
}

template <typename T>
void reduce_typed(ReduceOp op, std::byte* out, std::span<const std::byte* const> sources,
                  int64_t count) {
  switch (op) {
    case ReduceOp::kSum:
      return reduce_with<T, Sum>(out, sources, count);
    case ReduceOp::kAvg:
      return reduce_with<T, Average>(out, sources, count);
    case ReduceOp::kMax:
      return reduce_with<T, Largest>(out, sources, count);
    case ReduceOp::kMin:
      return reduce_with<T, Smallest>(out, sources, count);
  }
}

/// Any dtype that at::add knows.
void reduce_tensors(c10::ScalarType dtype, ReduceOp op, std::byte* out,
                    std::span<const std::byte* const> sources, int64_t count) {
  const auto view = [&](const std::byte* data) {
    return at::from_blob(const_cast<std::byte*>(data), {count}, at::TensorOptions().dtype(dtype));
  };
  at::Tensor result = view(sources[0]).clone();
  for (const std::byte* source : sources.subspan(1)) {
    if (op == ReduceOp::kMax) {
      result = at::maximum(result, view(source));
    } else if (op == ReduceOp::kMin) {
      result = at::minimum(result, view(source));
    } else {
      result.add_(view(source));
    }
  }
  if (op == ReduceOp::kAvg) {
    const auto num_sources = static_cast<int64_t>(sources.size());
    if (c10::isIntegralType(dtype, true)) {
      result.div_(num_sources, "trunc");
    } else {
      result.div_(num_sources);
    }
  }
  view(out).copy_(result);
}

}  // namespace

void reduce_sources(c10::ScalarType dtype, ReduceOp op, std::byte* out,
                    std::span<const std::byte* const> sources, int64_t count) {
  if (dtype == at::kFloat) return reduce_typed<float>(op, out, sources, count);
  if (dtype == at::kBFloat16) return reduce_typed<Bfloat16Bits>(op, out, sources, count);
  if (dtype == at::kDouble) return reduce_typed<double>(op, out, sources, count);
  if (dtype == at::kLong) return reduce_typed<int64_t>(op, out, sources, count);
  reduce_tensors(dtype, op, out, sources, count);
}

}  // namespace automodel::comm
