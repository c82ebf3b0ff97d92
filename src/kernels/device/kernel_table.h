#pragma once

#include <cstdint>

#include "kernels/cpu/loops.h"

namespace automodel::kernels::device {

/// Where the heads of tokens lie, [tokens, num_heads + 2 num_kv_heads, head_dim], and how those of
/// q and k are normed and rotated; as QkvOptions.
template <typename T>
struct Heads {
  int64_t tokens = 0;
  int64_t length = 0;  ///< of a sequence: its positions begin anew
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t half = 0;           ///< pairs of a head that are rotated
  const T* q_norm = nullptr;  ///< null: none
  const T* k_norm = nullptr;
  const float* cos = nullptr;  ///< [positions, half]
  const float* sin = nullptr;
  const int64_t* positions = nullptr;  ///< of the tokens; null: 0, 1, ... in every sequence
  float eps = 0;
  bool adds_one = false;
};

/// How logits become losses and gradients; as CrossEntropyOptions.
struct LogitsToLosses {
  int64_t ignore_index = -100;
  float scale = 1;
  float cap = 0;     ///< 0: none
  float factor = 1;  ///< of the gradients
};

/// Where rows of `width` numbers lie in a stream of random ones: row i's first is
/// first + i / inner * outer_stride + i % inner * inner_stride.
struct RandomRows {
  uint64_t first = 0;
  int64_t rows = 1;
  int64_t width = 0;
  int64_t inner = 1;
  uint64_t outer_stride = 0;
  uint64_t inner_stride = 0;
};

/// out [rows, width] = factor * h [rows, rank] times factors [rank, width], of which h and out lie
/// by rows, factors as they like.
template <typename T>
struct LowRank {
  const T* h = nullptr;
  const T* factors = nullptr;
  T* out = nullptr;
  int64_t rows = 0;
  int64_t width = 0;
  int64_t rank = 0;
  int64_t h_stride = 0;       ///< from row to row
  int64_t out_stride = 0;     ///< from row to row
  int64_t rank_stride = 0;    ///< of the factors, from row to row
  int64_t column_stride = 0;  ///< of the factors, from column to column
  float factor = 1;
};

/// Work on rows in a device's memory of one storage type T, float or cpu::Bfloat16, as
/// cpu::RowLoops does it: each is one launch on the current stream and returns at once. Sums of a
/// weight's gradient come as `num_partials` rows, each written, to be added up; none where
/// `partials` is null.
template <typename T>
struct DeviceRows {
  void (*rms_forward)(const T* x, const T* residual, T* sum, const T* w, T* y, float* rstd,
                      int64_t rows, int64_t dim, float eps, bool adds_one);
  void (*rms_backward)(const T* dy, const T* x, const T* w, const float* rstd, const T* d_sum,
                       T* dx, float* partials, int64_t num_partials, int64_t rows, int64_t dim,
                       bool adds_one);
  void (*gated_forward)(const T* gate_up, T* out, int64_t rows, int64_t half, int act);
  void (*gated_backward)(const T* d_out, const T* gate_up, T* d_gate_up, int64_t rows, int64_t half,
                         int act);
  /// rstd [tokens, num_heads + num_kv_heads]
  void (*heads_forward)(const Heads<T>& heads, const T* qkv, T* q, T* k, T* v, float* rstd);
  /// qkv and rstd null without norms; partials are rows of q_norm's and k_norm's gradients, null
  /// where neither is trained.
  void (*heads_backward)(const Heads<T>& heads, const T* qkv, const float* rstd, const T* dq,
                         const T* dk, const T* dv, T* d_qkv, float* partials, int64_t num_partials);
  /// Logits become their gradients. A label outside the row that is not ignored ends the device's
  /// work with an error.
  void (*cross_entropy)(T* logits, const int64_t* labels, float* losses, int64_t rows,
                        int64_t width, const LogitsToLosses& options);
  void (*squares)(const T* numbers, int64_t count, double* partials, int64_t num_partials);
  /// Returns whether it has done it: not for ranks above 32, nor for rows of h that 16 bytes at a
  /// time do not read.
  bool (*low_rank)(const LowRank<T>& product);
  /// As cpu::RowLoops::drop, of `where.rows` rows, one behind the other in x and out.
  void (*drop)(const cpu::DropoutStream& dropout, const RandomRows& where, const T* x, T* out);
  /// `count` values of 4 bits, a multiple of 64, each 64 of which share a factor; the 16 `codes`
  /// lie on the host, out on a 16-byte border.
  void (*four_bit_values)(const uint8_t* bytes, const float* factors, const float* codes, T* out,
                          int64_t count);
};

/// Adam over flat memory; `factors` (cpu::AdamFactor) lie on the host, v_max null unless amsgrad.
using DeviceAdam = void (*)(void* p, const void* g, void* m, void* v, void* v_max,
                            const float* factors, int64_t count);

/// The kernels of one kind of device.
struct DeviceKernels {
  /// How many rows of partial sums are worth while, where a block makes one and where a warp does.
  int64_t (*most_partials)();
  int64_t (*most_partials_of_heads)();
  /// Whether PyTorch has FlashAttention for the current device, cuDNN's attention, and products of
  /// many matrices with rows of which only the device knows how many are whose (at::_grouped_mm).
  bool (*has_flash_attention)();
  bool (*has_cudnn_attention)();
  bool (*has_grouped_products)();
  DeviceRows<float> float32;
  DeviceRows<cpu::Bfloat16> bfloat16;
  /// Indexed by whether parameters, gradients and states are bfloat16.
  DeviceAdam adam[2][2][2];

  template <typename T>
  const DeviceRows<T>& of() const;
};

template <>
inline const DeviceRows<float>& DeviceKernels::of() const {
  return float32;
}
template <>
inline const DeviceRows<cpu::Bfloat16>& DeviceKernels::of() const {
  return bfloat16;
}

}  // namespace automodel::kernels::device
