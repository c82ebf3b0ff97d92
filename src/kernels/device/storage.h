#pragma once

// Numbers in a device's memory, read and written as float32. Compiled by nvcc for the device, and
// by the host's compiler for tests.

#include <cstdint>
#include <cstring>

#include "kernels/cpu/loops.h"

#ifdef __CUDACC__
#define AM_DEVICE __device__ __forceinline__
#define AM_UNROLL _Pragma("unroll")
#else
#define AM_DEVICE inline
#define AM_UNROLL
#endif

namespace automodel::kernels::device {

using cpu::Bfloat16;

AM_DEVICE float widened(float x) {
  return x;
}

AM_DEVICE float widened(Bfloat16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

AM_DEVICE void put(float& to, float x) {
  to = x;
}

/// To the nearest, even where two are as near. A NaN stays one: quiet, on the host with its upper
/// bits.
AM_DEVICE void put(Bfloat16& to, float x) {
#ifdef __CUDA_ARCH__
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
#else
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40U;
  to.bits = static_cast<uint16_t>(x != x ? quiet : rounded);
#endif
}

/// Neighbouring numbers that are moved by one instruction.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T numbers[kWidth];
};

/// `from` is a multiple of the pack's size.
template <int kWidth, typename T>
AM_DEVICE Pack<T, kWidth> load(const T* from) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(from);
}

template <int kWidth, typename T>
AM_DEVICE void store(T* to, const Pack<T, kWidth>& pack) {
  *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
}

/// The numbers of 16 bytes.
template <typename T>
constexpr int kFullWidth = 16 / sizeof(T);

}  // namespace automodel::kernels::device
