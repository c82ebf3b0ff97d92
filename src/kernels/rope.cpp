#include "kernels/rope.h"

#include <ATen/ATen.h>

namespace automodel::kernels {

at::Tensor rotate(const at::Tensor& x, const RopeTable& rope, const at::Tensor& position_ids) {
  const int64_t half = rope.cos.size(1);
  const int64_t length = x.size(1);
  // [B or 1, S, 1, R / 2]
  const auto rows = [&](const at::Tensor& table) {
    const at::Tensor picked = position_ids.defined()
                                  ? table.index_select(0, position_ids.reshape({-1}))
                                        .view({position_ids.size(0), length, half})
                                  : table.narrow(0, 0, length).unsqueeze(0);
    return picked.unsqueeze(2);
  };
  const at::Tensor cos = rows(rope.cos);
  const at::Tensor sin = rows(rope.sin);
  const at::Tensor first = x.narrow(-1, 0, half).to(at::kFloat);
  const at::Tensor second = x.narrow(-1, half, half).to(at::kFloat);
  std::vector<at::Tensor> parts = {(first * cos - second * sin).to(x.scalar_type()),
                                   (second * cos + first * sin).to(x.scalar_type())};
  const int64_t rest = x.size(-1) - 2 * half;
  if (rest > 0) parts.push_back(x.narrow(-1, 2 * half, rest));
  return at::cat(parts, -1);
}

Qkv split_norm_rotate(const at::Tensor& qkv, const QkvOptions& options) {
  const int64_t batch = qkv.size(0);
  const int64_t length = qkv.size(1);
  const int64_t q_size = options.num_heads * options.head_dim;
  const int64_t kv_size = options.num_kv_heads * options.head_dim;
  const auto heads = [&](int64_t begin, int64_t size, int64_t count) {
    return qkv.narrow(-1, begin, size).view({batch, length, count, options.head_dim});
  };
  Qkv out{heads(0, q_size, options.num_heads), heads(q_size, kv_size, options.num_kv_heads),
          heads(q_size + kv_size, kv_size, options.num_kv_heads)};
  if (options.q_norm.defined()) out.q = rms_norm(out.q, options.q_norm, options.norm);
  if (options.k_norm.defined()) out.k = rms_norm(out.k, options.k_norm, options.norm);
  if (options.rope.is_defined()) {
    out.q = rotate(out.q, options.rope, options.position_ids);
    out.k = rotate(out.k, options.rope, options.position_ids);
  }
  return out;
}

}  // namespace automodel::kernels
