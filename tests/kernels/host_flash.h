#pragma once

#include <ATen/ATen.h>
#include <torch/library.h>

#include <limits>
#include <optional>
#include <tuple>
#include <vector>

#include "kernels/host_kernels.h"

// PyTorch's operators aten::_flash_attention_forward and _backward for tensors on the CPU, which
// has none of its own, and those of cuDNN's attention: by whole scores in float32, with what the
// CUDA kernels refuse, the layouts of their results, and their rule that the last query stands
// beside the last key.

namespace automodel::kernels::device {

class HostFlash final {
 public:
  static inline int64_t num_calls = 0;
  static inline int64_t num_cudnn_calls = 0;

  /// Makes the operators, once a process.
  static void provide() {
    static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__,
                                  __LINE__);
    static const bool is_provided = [] {
      library.impl("_flash_attention_forward", TORCH_FN(forward));
      library.impl("_flash_attention_backward", TORCH_FN(backward));
      library.impl("_scaled_dot_product_cudnn_attention", TORCH_FN(cudnn_forward));
      library.impl("_scaled_dot_product_cudnn_attention_backward", TORCH_FN(cudnn_backward));
      return true;
    }();
    static_cast<void>(is_provided);
  }

 private:
  using Maybe = std::optional<at::Tensor>;

  static void check(const at::Tensor& x, int64_t dims) {
    TORCH_CHECK(x.scalar_type() == at::kBFloat16, "only half and bfloat16");
    TORCH_CHECK(x.dim() == dims && x.stride(-1) == 1, "last dimension contiguous");
    TORCH_CHECK(x.size(-1) % 8 == 0 && x.size(-1) <= 256, "head dimension");
  }
  static void check_ends(const at::Tensor& ends) {
    TORCH_CHECK(ends.scalar_type() == at::kInt && ends.is_contiguous() && ends.dim() == 1);
  }

  /// One sequence: [1, length, heads, dim] each.
  struct Sequence {
    at::Tensor q, k, v;
    double scale;
    int64_t left, right;

    at::Tensor by_head(const at::Tensor& x) const {
      return x.to(at::kFloat).transpose(1, 2).repeat_interleave(q.size(2) / x.size(2), 1);
    }
    at::Tensor is_hidden() const {
      const int64_t num_queries = q.size(1), num_keys = k.size(1);
      const at::Tensor places =
          at::arange(num_queries, at::kLong).unsqueeze(1) + (num_keys - num_queries);
      const at::Tensor distance = at::arange(num_keys, at::kLong) - places;
      at::Tensor hidden = at::zeros_like(distance, at::kBool);
      if (right >= 0) hidden = hidden.logical_or(distance.gt(right));
      if (left >= 0) hidden = hidden.logical_or(distance.lt(-left));
      return hidden;
    }
    at::Tensor scores() const {
      return (at::matmul(by_head(q), by_head(k).transpose(-1, -2)) * scale)
          .masked_fill_(is_hidden(), -kInfinity);
    }
  };

  static std::vector<Sequence> sequences(const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const at::Tensor& ends, double scale,
                                         int64_t left, int64_t right) {
    std::vector<Sequence> all;
    if (!ends.defined()) {
      for (int64_t b = 0; b < q.size(0); ++b) {
        all.push_back(
            {q.narrow(0, b, 1), k.narrow(0, b, 1), v.narrow(0, b, 1), scale, left, right});
      }
      return all;
    }
    const int32_t* const end = ends.data_ptr<int32_t>();
    for (int64_t i = 0; i + 1 < ends.size(0); ++i) {
      const auto part = [&](const at::Tensor& x) {
        return x.narrow(0, end[i], end[i + 1] - end[i]).unsqueeze(0);
      };
      all.push_back({part(q), part(k), part(v), scale, left, right});
    }
    return all;
  }

  static int64_t limit(std::optional<int64_t> window, int64_t num_keys) {
    return window && *window < num_keys ? *window : -1;
  }

  static std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> forward(
      const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Maybe& ends_q,
      const Maybe& ends_k, int64_t longest_q, int64_t longest_k, double dropout, bool is_causal,
      bool returns_mask, std::optional<double> scale, std::optional<int64_t> left,
      std::optional<int64_t> right, const Maybe&, const Maybe&) {
    num_calls += 1;
    const bool is_packed = ends_q.has_value() && ends_q->defined();
    for (const at::Tensor& x : {q, k, v}) check(x, is_packed ? 3 : 4);
    TORCH_CHECK(q.size(-1) == k.size(-1) && q.size(-1) == v.size(-1) && k.sizes() == v.sizes());
    TORCH_CHECK(q.size(-2) % k.size(-2) == 0 && dropout == 0 && !returns_mask && scale);
    if (is_packed) {
      check_ends(*ends_q);
      check_ends(*ends_k);
    }
    const at::Tensor ends = is_packed ? *ends_q : at::Tensor();
    std::vector<at::Tensor> outs, lses;
    for (const Sequence& one : sequences(q, k, v, ends, *scale, limit(left, longest_k),
                                         is_causal ? 0 : limit(right, longest_k))) {
      TORCH_CHECK(one.q.size(1) <= longest_q && one.k.size(1) <= longest_k);
      const at::Tensor scores = one.scores();
      const at::Tensor lse = scores.logsumexp(-1);
      const at::Tensor is_blind = lse.eq(-kInfinity);
      const at::Tensor p =
          at::exp(scores - lse.unsqueeze(-1)).masked_fill(is_blind.unsqueeze(-1), 0);
      outs.push_back(at::matmul(p, one.by_head(one.v)).transpose(1, 2).to(at::kBFloat16));
      lses.push_back(lse.masked_fill(is_blind, kInfinity));
    }
    const at::Tensor out = is_packed ? at::cat(outs, 1).squeeze(0) : at::cat(outs, 0);
    const at::Tensor lse = is_packed ? at::cat(lses, 2).squeeze(0) : at::cat(lses, 0);
    return {out.contiguous(), lse.contiguous(), at::empty({2}, at::kUInt64), at::Tensor(),
            at::Tensor()};
  }

  static std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(
      const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
      const at::Tensor& out, const at::Tensor& lse, const at::Tensor& ends_q,
      const at::Tensor& ends_k, int64_t, int64_t longest_k, double, bool is_causal,
      const at::Tensor&, const at::Tensor&, std::optional<double> scale,
      std::optional<int64_t> left, std::optional<int64_t> right) {
    num_calls += 1;
    for (const at::Tensor& x : {d_out, q, k, v, out}) check(x, ends_q.defined() ? 3 : 4);
    TORCH_CHECK(out.sizes() == q.sizes() && d_out.sizes() == q.sizes() && lse.is_contiguous());
    TORCH_CHECK(lse.scalar_type() == at::kFloat && ends_q.defined() == ends_k.defined());
    std::vector<at::Tensor> d_q, d_k, d_v;
    int64_t first = 0;
    const int64_t on_left = limit(left, longest_k);
    const int64_t on_right = is_causal ? 0 : limit(right, longest_k);
    const auto all = sequences(q, k, v, ends_q, *scale, on_left, on_right);
    const auto outs = sequences(out, d_out, d_out, ends_q, *scale, -1, -1);
    for (size_t i = 0; i < all.size(); ++i) {
      const Sequence& one = all[i];
      const int64_t length = one.q.size(1);
      const at::Tensor own = ends_q.defined() ? lse.narrow(1, first, length).unsqueeze(0)
                                              : lse.narrow(0, static_cast<int64_t>(i), 1);
      first += length;
      const at::Tensor p = at::exp(one.scores() - own.unsqueeze(-1)).nan_to_num(0.0);
      const at::Tensor d = outs[i].by_head(outs[i].k);
      const at::Tensor delta = (d * outs[i].by_head(outs[i].q)).sum(-1, true);
      const at::Tensor d_scores =
          (at::matmul(d, one.by_head(one.v).transpose(-1, -2)) - delta) * p * *scale;
      const auto narrow = [&](const at::Tensor& by_head, int64_t heads) {
        const at::Tensor groups =
            by_head.view({1, heads, by_head.size(1) / heads, by_head.size(2), by_head.size(3)});
        return groups.sum(2).transpose(1, 2).to(at::kBFloat16);
      };
      d_q.push_back(narrow(at::matmul(d_scores, one.by_head(one.k)), q.size(-2)));
      d_k.push_back(narrow(at::matmul(d_scores.transpose(-1, -2), one.by_head(one.q)), k.size(-2)));
      d_v.push_back(narrow(at::matmul(p.transpose(-1, -2), d), v.size(-2)));
    }
    const auto joined = [&](const std::vector<at::Tensor>& parts) {
      return (ends_q.defined() ? at::cat(parts, 1).squeeze(0) : at::cat(parts, 0)).contiguous();
    };
    return {joined(d_q), joined(d_k), joined(d_v)};
  }

  using CudnnForward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt,
                                  c10::SymInt, at::Tensor, at::Tensor, at::Tensor>;

  /// Heads before tokens, in any memory whose last dimension is contiguous; the result lies as q.
  static CudnnForward cudnn_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const Maybe& bias, bool has_lse, double dropout, bool is_causal,
                                    bool returns_mask, std::optional<double> scale) {
    num_cudnn_calls += 1;
    TORCH_CHECK(has_lse && is_causal && !bias && q.size(3) <= 128 && q.size(2) == k.size(2));
    const auto turned = [](const at::Tensor& x) { return x.transpose(1, 2).contiguous(); };
    auto [out, lse, random, unused, mask] =
        forward(turned(q), turned(k), turned(v), {}, {}, q.size(2), k.size(2), dropout, is_causal,
                returns_mask, scale, {}, {}, {}, {});
    num_calls -= 1;
    return {out.transpose(1, 2), lse.unsqueeze(-1), at::Tensor(), at::Tensor(), q.size(2),
            k.size(2),           at::Tensor(),      at::Tensor(), at::Tensor()};
  }

  static std::tuple<at::Tensor, at::Tensor, at::Tensor> cudnn_backward(
      const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
      const at::Tensor& out, const at::Tensor& lse, const at::Tensor&, const at::Tensor&,
      const at::Tensor& bias, const at::Tensor& ends_q, const at::Tensor& ends_k, int64_t longest_q,
      int64_t longest_k, double dropout, bool is_causal, std::optional<double> scale) {
    num_cudnn_calls += 1;
    TORCH_CHECK(is_causal && !bias.defined() && !ends_q.defined() && !ends_k.defined());
    TORCH_CHECK(lse.dim() == 4 && lse.size(3) == 1);
    const auto turned = [](const at::Tensor& x) { return x.transpose(1, 2).contiguous(); };
    const at::Tensor none;
    auto [d_q, d_k, d_v] =
        backward(turned(d_out), turned(q), turned(k), turned(v), turned(out), lse.squeeze(-1), none,
                 none, longest_q, longest_k, dropout, is_causal, none, none, scale, {}, {});
    num_calls -= 1;
    return {d_q.transpose(1, 2), d_k.transpose(1, 2), d_v.transpose(1, 2)};
  }

  static constexpr float kInfinity = std::numeric_limits<float>::infinity();
};

/// During its lifetime a HostKernelsScope has FlashAttention too, and cuDNN's where asked.
class HostFlashScope final {
 public:
  explicit HostFlashScope(bool has_cudnn = false) {
    HostFlash::provide();
    HostLauncher::has_flash = true;
    HostLauncher::has_cudnn = has_cudnn;
  }
  ~HostFlashScope() { HostLauncher::has_flash = HostLauncher::has_cudnn = false; }
  HostFlashScope(const HostFlashScope&) = delete;
  HostFlashScope& operator=(const HostFlashScope&) = delete;

 private:
  HostKernelsScope kernels_{host_kernels()};
};

}  // namespace automodel::kernels::device
