#pragma once

#include <cstdint>

#include "kernels/cpu/eight_bit_block.h"
#include "kernels/cpu/flash_group.h"

namespace automodel::kernels::cpu {

/// A bfloat16 number in memory: the upper half of a float32's bits.
struct Bfloat16 {
  uint16_t bits;
};

/// A half-precision number in memory.
struct Float16 {
  uint16_t bits;
};

/// A matrix of a product: rows [R, C] with contiguous elements, all of them or those selected by
/// `rows`, used as rows or as columns.
struct ProductOperand {
  const void* data = nullptr;
  int64_t stride = 0;             ///< elements between rows
  const int64_t* rows = nullptr;  ///< which; null: all
  bool is_transposed = false;
  bool is_bfloat16 = false;  ///< type of `data`; else float

  /// T is float or Bfloat16, what the matrix holds.
  template <typename T>
  const T* row(int64_t r) const {
    return static_cast<const T*>(data) + (rows != nullptr ? rows[r] : r) * stride;
  }
};

/// Some rows and columns of c [m, n] = alpha * a [m, depth] b [depth, n] (+ c), depth > 0. Sums are
/// float32 for any matrices, and are rounded once to c's type.
struct ProductPart {
  ProductOperand a, b;
  void* c = nullptr;
  int64_t c_stride = 0;
  int64_t depth = 0;
  int64_t row_begin = 0, row_end = 0;
  int64_t column_begin = 0, column_end = 0;
  float alpha = 1;
  bool adds = false;
  bool is_c_bfloat16 = false;  ///< what c holds; else float
  /// Whether the whole product has few columns, steps or rows of features: making tiles of float32
  /// numbers would take longer than multiplying them.
  bool is_narrow = false;
  /// Float32, added to each row of c; readable up to column_end rounded up to kMostTileColumns.
  /// Null: none.
  const float* bias = nullptr;
};

/// What a product works on at a time fits a core's cache: this many steps of the inner dimension,
/// and columns.
constexpr int64_t kProductDepth = 768;
constexpr int64_t kProductColumns = 256;
constexpr int64_t kMostTileColumns = 32;

/// Rows of a bfloat16 result whose sums are held at once.
constexpr int64_t kRoundedRows = 512;
/// The longest head that the loops of heads take.
constexpr int64_t kMostHeadDim = 1024;

/// What dropout keeps: the elements whose number in a stream of tensor::RandomKey is at least
/// `least` times 2^-24.
struct DropoutStream {
  uint64_t seed = 0;
  uint64_t stream = 0;
  uint32_t least = 0;
  float scale = 1;  ///< of what is kept
};

/// Loops over rows in memory of one storage type T, float or Bfloat16. Arithmetic, and what is not
/// T*, is float32; a result is rounded once, to the nearest even.
template <typename T>
struct RowLoops {
  /// y = x * rstd * (w or 1 + w); with `residual`, x + residual is written to `sum` first.
  void (*rms_forward)(const T* x, const T* residual, T* sum, const T* w, T* y, float* rstd,
                      int64_t rows, int64_t dim, float eps, bool adds_one);
  /// rms_forward's y, bit for bit, of what it wrote.
  void (*rms_again)(const T* x, const T* w, const float* rstd, T* y, int64_t rows, int64_t dim,
                    bool adds_one);
  /// dx = d_sum (may be null) + gradient through the norm; dw += gradient of w.
  void (*rms_backward)(const T* dy, const T* x, const T* w, const float* rstd, const T* d_sum,
                       T* dx, float* dw, int64_t rows, int64_t dim, bool adds_one);
  /// LayerNorm: y = (x - mean) * rstd * w + b; with `residual`, x + residual is written to `sum`
  /// first. b may be null. `moments` gets each row's mean and rstd.
  void (*layer_forward)(const T* x, const T* residual, T* sum, const T* w, const T* b, T* y,
                        float* moments, int64_t rows, int64_t dim, float eps);
  /// layer_forward's y, bit for bit, of what it wrote.
  void (*layer_again)(const T* x, const T* w, const T* b, const float* moments, T* y, int64_t rows,
                      int64_t dim);
  /// dx = d_sum (may be null) + gradient through the norm; d_weights, dim numbers of w's and then
  /// dim of b's gradient, are added to.
  void (*layer_backward)(const T* dy, const T* x, const T* w, const float* moments, const T* d_sum,
                         T* dx, float* d_weights, int64_t rows, int64_t dim);
  /// out = act(x); act: 0 exact gelu, 1 gelu by tanh, 2 squared relu.
  void (*activate)(const T* x, T* out, int64_t count, int act);
  /// dx from d_out, in whose memory it may lie.
  void (*activate_backward)(const T* d_out, const T* x, T* dx, int64_t count, int act);
  /// out = act(gate) * up of rows [gate | up]; act: 0 silu, 1 gelu by tanh.
  void (*gated_forward)(const T* gate_up, T* out, int64_t rows, int64_t half, int act);
  void (*gated_backward)(const T* d_out, const T* gate_up, T* d_gate_up, int64_t rows, int64_t half,
                         int act);
  /// One head: out = rotate(norm(x)); w null: no norm; half 0: no rotation. Returns rstd.
  float (*head_forward)(const T* x, const T* w, const float* cos, const float* sin, T* out,
                        int64_t dim, int64_t half, float eps, bool adds_one);
  /// Backward: dx from d_out, using `scratch` [dim]; dw += gradient of w.
  void (*head_backward)(const T* d_out, const T* x, const T* w, const float* cos, const float* sin,
                        float rstd, float* scratch, T* dx, float* dw, int64_t dim, int64_t half,
                        bool adds_one);
  float (*dot)(const T* a, const T* b, int64_t count);
  /// sum += row
  void (*add_row)(const T* row, float* sum, int64_t count);
  /// The sum of the squares of `count` numbers, in float64.
  double (*squares)(const T* row, int64_t count);
  /// out = x * scale where an element is kept, x * 0 where it is dropped; x[i] is element first +
  /// i, and out may be x.
  void (*drop)(const DropoutStream& dropout, uint64_t first, const T* x, T* out, int64_t count);
  /// out (may be null) = w [groups, size] as 4 bits about zero have it, with scales in bfloat16 or
  /// float32; gradient (may be null), of out, becomes that of w. See products/fake_quantize.h.
  void (*round_groups)(const T* w, T* out, T* gradient, int64_t groups, int64_t size,
                       bool has_narrow_scales);
  /// out (may be null) = x with every row as 8 bits have it that lie between its least and greatest
  /// number and 0; gradient (may be null), of out, becomes that of x.
  void (*round_tokens)(const T* x, T* out, T* gradient, int64_t rows, int64_t dim);
};

/// Adam over a range of arrays of any storage; v_max null unless amsgrad.
using AdamLoop = void (*)(void* p, const void* g, void* m, void* v, void* v_max,
                          const float* factors, int64_t count);

/// The 256 values that a byte stands for, and how the nearest to a number is found: by the upper
/// 16 bits of its magnitude, which leave at most one border between two values open.
struct EightBitMap {
  static constexpr int32_t kFirstCell = 103 << 7;  ///< upper bits of 2^-24: smaller ones share it
  static constexpr int32_t kNumCells = (127 << 7) - kFirstCell + 1;  ///< up to 1

  float values[256];             ///< ascending
  float borders[256];            ///< halfway from a value to the next; the last is infinite
  int32_t codes[2 * kNumCells];  ///< of the lowest number in a cell; negative numbers behind
};

/// State in 8 bits: element i is map->values[codes[i]] * absmax[i / kEightBitBlock].
struct EightBitRow {
  const EightBitMap* map = nullptr;
  uint8_t* codes = nullptr;
  float* absmax = nullptr;
};

/// Adam with decoupled decay over a range that begins where a block does.
using AdamEightBitLoop = void (*)(void* p, const void* g, const EightBitRow& m,
                                  const EightBitRow& v, const float* factors, int64_t count);

/// Where FlashAdam's elements lie, from one with which a group begins.
struct FlashAdamRow {
  void* p = nullptr;
  const void* g = nullptr;
  void* m = nullptr;            ///< int8 codes, or numbers of p's type
  void* v = nullptr;            ///< uint8 codes, or numbers of p's type
  Float16* m_scales = nullptr;  ///< one for each kFlashGroup elements; null: m and v are numbers
  Float16* v_scales = nullptr;
  void* corrections = nullptr;        ///< null: p is all there is of a weight
  bool are_corrections_wide = false;  ///< int16; else int8
};

using FlashAdamLoop = void (*)(const FlashAdamRow& row, const FlashAdamFactors& factors,
                               int64_t count);

/// Inner loops, compiled for several instruction sets and chosen once at run time. No loop
/// allocates, locks or starts threads; callers split rows over threads.
struct LoopTable {
  const char* isa;  ///< "amx", "avx512_bf16", "avx512", "avx2", "baseline"

  RowLoops<float> float32;
  RowLoops<Bfloat16> bfloat16;
  /// Indexed by whether parameters, gradients and states are bfloat16.
  AdamLoop adam[2][2][2];
  /// Indexed by whether parameters and gradients are bfloat16.
  AdamEightBitLoop adam_eight_bit[2][2];
  /// Indexed by whether parameters and gradients are bfloat16.
  FlashAdamLoop flash_adam[2][2];
  /// Row of scores -> probabilities over [begin, end), zeros elsewhere in [0, width); returns the
  /// log of the sum of exponentials, -inf for an empty range. cap > 0: scores are capped first.
  float (*softmax_row)(float* scores, int64_t begin, int64_t end, int64_t width, float cap);
  /// The gradients of a row's probabilities exp(s - lse), weighted by them and added up. The
  /// probabilities take the place of the scores, unless these are capped.
  float (*expected_row)(float* scores, const float* grads, int64_t begin, int64_t end, float lse,
                        float cap);
  /// scores -> probabilities exp(s - lse) in place, unless `are_probabilities` says that
  /// expected_row() was there; grads (d of probabilities) -> d of scores.
  void (*softmax_backward_row)(float* scores, float* grads, int64_t begin, int64_t end,
                               int64_t width, float lse, float delta, float scale, float cap,
                               bool are_probabilities);
  /// Cross-entropy of one row of logits, which become their gradients times `factor`.
  double (*cross_entropy_row)(float* logits, int64_t label, int64_t width, float logit_scale,
                              float cap, float factor);
  void (*widen)(const Bfloat16* from, float* to, int64_t count);
  /// Rounds to nearest, ties to even; NaN stays NaN.
  void (*round)(const float* from, Bfloat16* to, int64_t count);
  /// `scratch` holds product_scratch(part) floats. A number's bits do not depend on how c is cut
  /// into parts.
  void (*multiply)(const ProductPart& part, float* scratch);
  int64_t (*product_scratch)(const ProductPart& part);

  template <typename T>
  const RowLoops<T>& of() const;
};

template <>
inline const RowLoops<float>& LoopTable::of() const {
  return float32;
}
template <>
inline const RowLoops<Bfloat16>& LoopTable::of() const {
  return bfloat16;
}

/// What products without tile registers work in: min(depth, kProductDepth) rows of the part's
/// columns, at most kProductColumns, rounded up to kMostTileColumns; and sums for a bfloat16 result
/// that is deeper.
int64_t vector_product_scratch(const ProductPart& part);

/// Order of an AdamLoop's factors. 1 - beta comes rounded from float64: subtracted in float32
/// it keeps four digits of 1 - 0.9999.
enum AdamFactor {
  kDecay,
  kL2,
  kBeta1,
  kOneMinusBeta1,
  kBeta2,
  kOneMinusBeta2,
  kStepSize,
  kRootCorrection,
  kEps,
  kGradScale,
  kNumAdamFactors
};

/// The table for this CPU.
const LoopTable& loops();

const LoopTable& baseline_loops();
const LoopTable& avx2_loops();
const LoopTable& avx512_loops();
/// avx512_loops() with products of bfloat16 by dot products of pairs.
const LoopTable& avx512_bf16_loops();
/// avx512_loops() with products by AMX's tiles, of bfloat16 numbers and of float32 ones.
const LoopTable& amx_loops();

}  // namespace automodel::kernels::cpu
