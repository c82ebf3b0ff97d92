#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace automodel::tensor {
struct FlatShard;
}

namespace automodel::kernels {

/// One Adam or AdamW step, torch.optim's formula: m and v are exponential averages of the gradient
/// and its square, p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps).
struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool is_decoupled = true;  ///< AdamW: p *= 1 - lr * wd; otherwise wd * p is added to the gradient
  int64_t step = 1;          ///< t, counted from 1
  bool is_bias_corrected = true;  ///< false: without the divisions by 1 - beta^t
  double grad_scale = 1.0;        ///< the gradient is multiplied by it first (clipping)
};

/// 1 - beta1^t and 1 - beta2^t, or ones without bias correction.
std::pair<double, double> bias_corrections(const AdamOptions& options);

/// Updates parameter, exp_avg and exp_avg_sq (one-dimensional, equal numel, contiguous;
/// max_exp_avg_sq undefined unless amsgrad) in one pass over memory. Computes in float32 for any
/// storage, except that float64 stays float64.
void adam_step(at::Tensor parameter, const at::Tensor& gradient, at::Tensor exp_avg,
               at::Tensor exp_avg_sq, at::Tensor max_exp_avg_sq, const AdamOptions& options);

/// An average in 8 bits (dynamic_codes.h): `codes` (uint8) has an element for each of the
/// parameter's, `absmax` (float32) the largest magnitude in each block of 256 of them, by which the
/// codes' values are multiplied. The last block may be shorter. Zeros in both mean zeros.
struct EightBitState {
  at::Tensor codes;
  at::Tensor absmax;
};

/// Adam with decoupled weight decay (whatever `options.is_decoupled`) and averages in 8 bits, as
/// bitsandbytes computes it: both averages become float32, take the gradient, update the parameter,
/// and are rounded to the nearest codes; halfway, to the lower one. `exp_avg` is signed,
/// `exp_avg_sq` not. One pass over memory. A number that is not finite makes its block's absmax
/// NaN.
void adam_eight_bit_step(at::Tensor parameter, const at::Tensor& gradient, EightBitState exp_avg,
                         EightBitState exp_avg_sq, const AdamOptions& options);

struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool is_nesterov = false;
  bool is_first_step = false;  ///< the momentum buffer becomes the gradient
  double grad_scale = 1.0;
};

/// torch.optim.SGD's step; `momentum_buffer` undefined when momentum is 0.
void sgd_step(at::Tensor parameter, const at::Tensor& gradient, at::Tensor momentum_buffer,
              const SgdOptions& options);

/// Sum of squares of a flat tensor, accumulated in float64, in an order that does not depend on the
/// number of threads.
double sum_of_squares(const at::Tensor& flat);

/// sum_of_squares() of each flat tensor; the results of tensors on a device (all on one) are read
/// back together.
std::vector<double> sums_of_squares(const std::vector<at::Tensor>& flats);
/// sum_of_squares() of each shard's buffer, read back together likewise.
std::vector<double> sums_of_squares(const std::vector<tensor::FlatShard>& shards);

}  // namespace automodel::kernels
