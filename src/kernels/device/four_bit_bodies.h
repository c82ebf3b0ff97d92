#pragma once

// Values of matrices held in 4 bits, by teams as row_bodies.h describes them.

#include "kernels/device/kernel_table.h"
#include "kernels/device/storage.h"

namespace automodel::kernels::device {

/// What 4 bits mean, as a value that a launch can pass on.
struct FourBitCodes {
  float of[16];
};

template <typename T>
struct FourBitValues {
  const uint8_t* bytes;  // two values each, the first in the upper half
  const float* factors;  // of each 64 values
  FourBitCodes codes;
  T* out;
  int64_t count;  // a multiple of 64

  template <typename Team>
  AM_DEVICE void operator()(Team& team) const {
    constexpr int kPiece = 8, kBlockPieces = 64 / kPiece;
    float* const table = team.scratch();  // 16 floats in as many banks
    team.each([&](int thread) {
      if (thread < 16) table[thread] = codes.of[thread];
    });
    team.each([&](int thread) {
      for (int64_t piece = team.index() * Team::kThreads + thread; piece < count / kPiece;
           piece += team.count() * Team::kThreads) {
        const Pack<uint8_t, kPiece / 2> packed = load<kPiece / 2>(bytes + piece * (kPiece / 2));
        const float factor = factors[piece / kBlockPieces];
        T values[kPiece];
        AM_UNROLL
        for (int k = 0; k < kPiece / 2; ++k) {
          put(values[2 * k], table[packed.numbers[k] >> 4] * factor);
          put(values[2 * k + 1], table[packed.numbers[k] & 15] * factor);
        }
        put_piece(values, out + piece * kPiece);
      }
    });
  }

 private:
  AM_DEVICE static void put_piece(const T (&values)[8], T* to) {
    constexpr int kFull = kFullWidth<T>;
    AM_UNROLL
    for (int first = 0; first < 8; first += kFull) {
      Pack<T, kFull> pack;
      AM_UNROLL
      for (int k = 0; k < kFull; ++k) pack.numbers[k] = values[first + k];
      store<kFull>(to + first, pack);
    }
  }
};

}  // namespace automodel::kernels::device
