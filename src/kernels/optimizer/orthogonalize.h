#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <vector>

namespace automodel::kernels {

/// Newton–Schulz iterations X = a X + (b A + c A A) X with A = X X^T, which bring the singular
/// values of a matrix near 1.
struct OrthogonalizeOptions {
  std::vector<std::array<double, 3>> coefficients;  ///< a, b and c of each iteration
  double norm_factor = 1.0;  ///< the matrix is first divided by its Frobenius norm times this
  double eps = 1e-7;         ///< least divisor, or added to it
  bool is_eps_added = false;
  bool is_narrow = false;  ///< compute in bfloat16
};

/// The five iterations of Polar Express (Amsel et al. 2025, arXiv 2505.16932), for a norm times
/// 1.02.
inline constexpr std::array<std::array<double, 3>, 5> kPolarExpressCoefficients = {{
    {8.156554524902461, -22.48329292557795, 15.878769915207462},
    {4.042929935166739, -2.808917465908714, 0.5000178451051316},
    {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
    {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
    {2.3465413258596377, -1.7097828382687081, 0.42323551169305323},
}};

/// The orthogonalized matrix of a matrix [rows, columns], in its dtype, computed in that dtype or
/// in bfloat16.
at::Tensor orthogonalize(const at::Tensor& matrix, const OrthogonalizeOptions& options);

}  // namespace automodel::kernels
