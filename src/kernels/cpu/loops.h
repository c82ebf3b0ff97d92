#pragma once

#include <cstdint>

namespace automodel::kernels::cpu {

/// A float32 matrix for a product: rows [R, C] of C neighbours, all of them or those that `rows`
/// names, taken as they are or as columns.
struct ProductOperand {
  const float* data = nullptr;
  int64_t stride = 0;             ///< elements between rows
  const int64_t* rows = nullptr;  ///< which; null: all
  bool is_transposed = false;

  const float* row(int64_t r) const { return data + (rows != nullptr ? rows[r] : r) * stride; }
};

/// Some rows and columns of c [m, n] = alpha * a [m, depth] b [depth, n] (+ c), depth > 0.
struct ProductPart {
  ProductOperand a, b;
  float* c = nullptr;
  int64_t c_stride = 0;
  int64_t depth = 0;
  int64_t row_begin = 0, row_end = 0;
  int64_t column_begin = 0, column_end = 0;
  float alpha = 1;
  bool adds = false;
};

/// What a product works on at a time fits a core's cache: this many steps of the inner dimension,
/// and columns.
constexpr int64_t kProductDepth = 256;
constexpr int64_t kProductColumns = 512;
constexpr int64_t kMostTileColumns = 32;

/// Inner loops over float32 rows, compiled for several instruction sets and chosen once at run
/// time. No loop allocates, locks or starts threads; callers split rows over threads.
struct LoopTable {
  const char* isa;  ///< "avx512", "avx2", "baseline"

  /// y = x * rstd * (w or 1 + w); with `residual`, x + residual is written to `sum` first.
  void (*rms_forward)(const float* x, const float* residual, float* sum, const float* w, float* y,
                      float* rstd, int64_t rows, int64_t dim, float eps, bool adds_one);
  /// dx = d_sum (may be null) + gradient through the norm; dw += gradient of w.
  void (*rms_backward)(const float* dy, const float* x, const float* w, const float* rstd,
                       const float* d_sum, float* dx, float* dw, int64_t rows, int64_t dim,
                       bool adds_one);
  /// out = act(gate) * up of rows [gate | up]; act: 0 silu, 1 gelu by tanh.
  void (*gated_forward)(const float* gate_up, float* out, int64_t rows, int64_t half, int act);
  void (*gated_backward)(const float* d_out, const float* gate_up, float* d_gate_up, int64_t rows,
                         int64_t half, int act);
  /// One head: out = rotate(norm(x)); w null: no norm; half 0: no rotation. Returns rstd.
  float (*head_forward)(const float* x, const float* w, const float* cos, const float* sin,
                        float* out, int64_t dim, int64_t half, float eps, bool adds_one);
  /// The way back: dx from d_out (which it overwrites); dw += gradient of w.
  void (*head_backward)(float* d_out, const float* x, const float* w, const float* cos,
                        const float* sin, float rstd, float* dx, float* dw, int64_t dim,
                        int64_t half, bool adds_one);
  /// Row of scores -> probabilities over [begin, end), zeros elsewhere in [0, width); returns the
  /// log of the sum of exponentials, -inf for an empty range. cap > 0: scores are capped first.
  float (*softmax_row)(float* scores, int64_t begin, int64_t end, int64_t width, float cap);
  /// scores -> probabilities exp(s - lse) in place; grads (d of probabilities) -> d of scores.
  void (*softmax_backward_row)(float* scores, float* grads, int64_t begin, int64_t end,
                               int64_t width, float lse, float delta, float scale, float cap);
  /// Cross-entropy of one row of logits, which become their gradients times `factor`.
  double (*cross_entropy_row)(float* logits, int64_t label, int64_t width, float logit_scale,
                              float cap, float factor);
  /// Adam over a range; v_max null unless amsgrad.
  void (*adam)(float* p, const float* g, float* m, float* v, float* v_max, const float* factors,
               int64_t count);
  float (*dot)(const float* a, const float* b, int64_t count);
  /// `scratch` holds min(depth, kProductDepth) rows of the part's columns, at most kProductColumns,
  /// rounded up to kMostTileColumns. Each number's bits are those of any other cut.
  void (*multiply)(const ProductPart& part, float* scratch);
};

/// Order of LoopTable::adam's factors. 1 - beta comes rounded from float64: subtracted in float32
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

}  // namespace automodel::kernels::cpu
