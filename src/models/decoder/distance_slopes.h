#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace automodel::models::decoder {

/// The slopes of ALiBi's heads, as its authors' code has them: powers of one number for a power of
/// two of heads; beyond it every other of the next power's.
std::vector<double> alibi_slopes(int64_t num_heads);

/// The dims that with_distances() adds to each head.
constexpr int64_t kDistanceDims = 8;

/// q [B, S, N, H] and k [B, S, K, H] with dims whose product, times `scale`, is a head's slope
/// times the key's position: softmax takes such scores as if slopes were multiplied by distances.
/// In narrow dtypes positions (exact below 2^16) and slopes (to about 2^-24) are sums of several
/// dims. `slopes`: of q's heads. `position_ids` [B, S], or undefined: 0, 1, ...
std::pair<at::Tensor, at::Tensor> with_distances(const at::Tensor& q, const at::Tensor& k,
                                                 const std::vector<double>& slopes,
                                                 const at::Tensor& position_ids, double scale);

}  // namespace automodel::models::decoder
