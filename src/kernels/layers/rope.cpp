#include "kernels/layers/rope.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>

#include "core/error.h"
#include "kernels/base/fused.h"
#include "kernels/cpu/loops.h"
#include "kernels/device/device_kernels.h"
#include "kernels/layers/layer_reference.h"

namespace automodel::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// Shapes and pointers that forward and backward share.
template <typename T>
struct QkvLayout {
  int64_t tokens, length, num_heads, num_kv_heads, head_dim, half;
  const T* q_norm;
  const T* k_norm;
  const float* cos;
  const float* sin;
  const int64_t* positions;
  float eps;
  bool adds_one;

  QkvLayout(const at::Tensor& qkv, const QkvOptions& options)
      : tokens(qkv.size(0) * qkv.size(1)),
        length(qkv.size(1)),
        num_heads(options.num_heads),
        num_kv_heads(options.num_kv_heads),
        head_dim(options.head_dim),
        half(options.rope.is_defined() ? options.rope.cos.size(1) : 0),
        q_norm(numbers_of<T>(options.q_norm)),
        k_norm(numbers_of<T>(options.k_norm)),
        cos(half > 0 ? options.rope.cos.data_ptr<float>() : nullptr),
        sin(half > 0 ? options.rope.sin.data_ptr<float>() : nullptr),
        positions(options.position_ids.defined() ? options.position_ids.data_ptr<int64_t>()
                                                 : nullptr),
        eps(static_cast<float>(options.norm.eps)),
        adds_one(options.norm.adds_one) {}

  device::Heads<T> for_device() const {
    return {tokens, length, num_heads, num_kv_heads, head_dim, half,    q_norm,
            k_norm, cos,    sin,       positions,    eps,      adds_one};
  }

  int64_t width() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
  int64_t row_of(int64_t token) const {
    return (positions != nullptr ? positions[token] : token % length) * half;
  }
};

template <typename T>
void forward_token(const QkvLayout<T>& layout, int64_t token, const T* in,
                   const std::array<T*, 3>& out, float* rstd) {
  const int64_t dim = layout.head_dim;
  const int64_t row = layout.row_of(token);
  const T* x = in + token * layout.width();
  T* q = out[0] + token * layout.num_heads * dim;
  T* k = out[1] + token * layout.num_kv_heads * dim;
  float* scales = rstd + token * (layout.num_heads + layout.num_kv_heads);
  const auto& loops = cpu::loops().of<T>();
  for (int64_t head = 0; head < layout.num_heads + layout.num_kv_heads; ++head) {
    const bool is_query = head < layout.num_heads;
    T* target = is_query ? q + head * dim : k + (head - layout.num_heads) * dim;
    scales[head] = loops.head_forward(x + head * dim, is_query ? layout.q_norm : layout.k_norm,
                                      layout.cos + row, layout.sin + row, target, dim, layout.half,
                                      layout.eps, layout.adds_one);
  }
  const T* v = x + (layout.num_heads + layout.num_kv_heads) * dim;
  std::copy(v, v + layout.num_kv_heads * dim, out[2] + token * layout.num_kv_heads * dim);
}

/// `in` and `rstd` are null without norms.
template <typename T>
void backward_token(const QkvLayout<T>& layout, int64_t token, const T* in,
                    const std::array<const T*, 3>& grads, const float* rstd, T* d_in,
                    float* d_norms) {
  const int64_t dim = layout.head_dim;
  const int64_t row = layout.row_of(token);
  const T* x = in != nullptr ? in + token * layout.width() : nullptr;
  T* dx = d_in + token * layout.width();
  const float* scales =
      rstd != nullptr ? rstd + token * (layout.num_heads + layout.num_kv_heads) : nullptr;
  const auto& loops = cpu::loops().of<T>();
  std::array<float, cpu::kMostHeadDim> scratch;
  for (int64_t head = 0; head < layout.num_heads + layout.num_kv_heads; ++head) {
    const bool is_query = head < layout.num_heads;
    const T* grad = is_query
                        ? grads[0] + (token * layout.num_heads + head) * dim
                        : grads[1] + (token * layout.num_kv_heads + head - layout.num_heads) * dim;
    loops.head_backward(
        grad, x != nullptr ? x + head * dim : nullptr, is_query ? layout.q_norm : layout.k_norm,
        layout.cos + row, layout.sin + row, scales != nullptr ? scales[head] : 1.0f, scratch.data(),
        dx + head * dim, is_query ? d_norms : d_norms + dim, dim, layout.half, layout.adds_one);
  }
  const T* dv = grads[2] + token * layout.num_kv_heads * dim;
  std::copy(dv, dv + layout.num_kv_heads * dim,
            dx + (layout.num_heads + layout.num_kv_heads) * dim);
}

/// A device's kernels for these heads; null: none.
const device::DeviceKernels* kernels_of(const at::Tensor& qkv, const QkvOptions& options) {
  return device::kernels_for({qkv, options.q_norm, options.k_norm});
}

struct SplitNormRotate : torch::autograd::Function<SplitNormRotate> {
  static tensor_list forward(AutogradContext* context, const at::Tensor& qkv_in,
                             const std::optional<at::Tensor>& q_norm,
                             const std::optional<at::Tensor>& k_norm, const QkvOptions* options) {
    const at::Tensor qkv = qkv_in.contiguous();
    const auto [out, rstd] = split(qkv, *options);
    // Without norms the backward pass only rotates and needs no values.
    const bool has_norm = q_norm.has_value() || k_norm.has_value();
    context->save_for_backward({has_norm ? qkv : at::Tensor(), q_norm.value_or(at::Tensor()),
                                k_norm.value_or(at::Tensor()), has_norm ? rstd : at::Tensor(),
                                options->rope.cos, options->rope.sin, options->position_ids});
    context->saved_data["heads"] =
        std::vector<int64_t>{options->num_heads, options->num_kv_heads, options->head_dim};
    context->saved_data["adds_one"] = options->norm.adds_one;
    context->saved_data["eps"] = options->norm.eps;
    return {out.q, out.k, out.v};
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const QkvOptions options = saved_options(*context, saved);
    const int64_t num_rows = options.num_heads + 2 * options.num_kv_heads;
    for (at::Tensor& gradient : gradients) gradient = gradient.contiguous();
    at::Tensor d_qkv =
        at::empty({gradients[0].size(0), gradients[0].size(1), num_rows * options.head_dim},
                  gradients[0].options());
    const bool is_norm_trained = (saved[1].defined() && saved[1].requires_grad()) ||
                                 (saved[2].defined() && saved[2].requires_grad());
    const at::Tensor d_norms = by_storage(d_qkv, [&](auto storage) {
      return backward_rows<decltype(storage)>(options, saved[0], saved[3], gradients, d_qkv,
                                              is_norm_trained);
    });
    const auto part = [&](const at::Tensor& norm, int64_t begin) {
      return norm.defined() && norm.requires_grad()
                 ? d_norms.narrow(0, begin, options.head_dim).to(norm.scalar_type(), false, true)
                 : at::Tensor();
    };
    return {d_qkv, part(saved[1], 0), part(saved[2], options.head_dim), at::Tensor()};
  }

  /// For nodes that keep their input.
  static Qkv again(AutogradContext& context) {
    const auto saved = context.get_saved_variables();
    return split(saved[0], saved_options(context, saved)).out;
  }
  static bool keeps_input(AutogradContext& context) {
    return context.get_saved_variables()[0].defined();
  }

 private:
  struct Split {
    Qkv out;
    at::Tensor rstd;  ///< [T, N + K] float32: 1 / rms of each head of q and k; 1 without norms
  };

  static Split split(const at::Tensor& qkv, const QkvOptions& options) {
    const auto heads = [&](int64_t count) {
      return at::empty({qkv.size(0), qkv.size(1), count, options.head_dim}, qkv.options());
    };
    Split all = {
        {heads(options.num_heads), heads(options.num_kv_heads), heads(options.num_kv_heads)},
        at::empty({qkv.size(0) * qkv.size(1), options.num_heads + options.num_kv_heads},
                  qkv.options().dtype(at::kFloat))};
    by_storage(qkv, [&](auto storage) {
      using T = decltype(storage);
      const QkvLayout<T> layout(qkv, options);
      const T* in = numbers_of<T>(qkv);
      const std::array<T*, 3> out = {numbers_of<T>(all.out.q), numbers_of<T>(all.out.k),
                                     numbers_of<T>(all.out.v)};
      float* scales = all.rstd.data_ptr<float>();
      if (const auto* const kernels = kernels_of(qkv, options)) {
        kernels->of<T>().heads_forward(layout.for_device(), in, out[0], out[1], out[2], scales);
        return;
      }
      at::parallel_for(0, layout.tokens, 32, [&](int64_t begin, int64_t end) {
        for (int64_t token = begin; token < end; ++token) {
          forward_token(layout, token, in, out, scales);
        }
      });
    });
    return all;
  }

  static QkvOptions saved_options(AutogradContext& context, const tensor_list& saved) {
    const auto heads = context.saved_data["heads"].toIntVector();
    QkvOptions options;
    options.num_heads = heads[0];
    options.num_kv_heads = heads[1];
    options.head_dim = heads[2];
    options.q_norm = saved[1];
    options.k_norm = saved[2];
    options.norm = {context.saved_data["eps"].toDouble(), context.saved_data["adds_one"].toBool()};
    options.rope = {saved[4], saved[5]};
    options.position_ids = saved[6];
    return options;
  }

  /// Writes d_qkv; returns the gradients of both norms, one behind the other; a device none of
  /// norms that are not trained.
  template <typename T>
  static at::Tensor backward_rows(const QkvOptions& options, const at::Tensor& qkv,
                                  const at::Tensor& rstd, const tensor_list& gradients,
                                  const at::Tensor& d_qkv, bool is_norm_trained) {
    const QkvLayout<T> layout(d_qkv, options);
    const T* in = numbers_of<T>(qkv);
    const std::array<const T*, 3> grads = {numbers_of<T>(gradients[0]), numbers_of<T>(gradients[1]),
                                           numbers_of<T>(gradients[2])};
    const auto* scales = numbers_of<float>(rstd);
    T* d_in = numbers_of<T>(d_qkv);
    if (const auto* const kernels = kernels_of(d_qkv, options)) {
      const int64_t units = layout.tokens * (layout.num_heads + 2 * layout.num_kv_heads);
      const at::Tensor partials = is_norm_trained
                                      ? device::partials_for(kernels->most_partials_of_heads(),
                                                             d_qkv, units, 2 * layout.head_dim)
                                      : at::Tensor();
      kernels->of<T>().heads_backward(layout.for_device(), in, scales, grads[0], grads[1], grads[2],
                                      d_in, numbers_of<float>(partials),
                                      is_norm_trained ? partials.size(0) : 0);
      return is_norm_trained ? partials.sum(0) : partials;
    }
    return sum_over_blocks(layout.tokens, 2 * layout.head_dim,
                           [&](int64_t begin, int64_t end, float* partial) {
                             for (int64_t token = begin; token < end; ++token) {
                               backward_token(layout, token, in, grads, scales, d_in, partial);
                             }
                           });
  }
};

/// The node of split_norm_rotate()'s loops; null: another one.
torch::autograd::CppNode<SplitNormRotate>* splitting_node(torch::autograd::Node* node) {
  return dynamic_cast<torch::autograd::CppNode<SplitNormRotate>*>(node);
}

/// Whether the table's cosines and sines are float32; a table that is not there is as good.
bool are_float32(const RopeTable& rope) {
  return !rope.is_defined() ||
         (rope.cos.scalar_type() == at::kFloat && rope.sin.scalar_type() == at::kFloat);
}

/// A table's rows [B or 1, length, 1, R / 2] of the positions.
at::Tensor rows_at(const at::Tensor& table, const at::Tensor& position_ids, int64_t length) {
  const at::Tensor picked = position_ids.defined()
                                ? table.index_select(0, position_ids.reshape({-1}))
                                      .view({position_ids.size(0), length, table.size(1)})
                                : table.narrow(0, 0, length).unsqueeze(0);
  return picked.unsqueeze(2);
}

}  // namespace

Qkv split_norm_rotate(const at::Tensor& qkv, const QkvOptions& options) {
  const bool has_loops =
      is_fusable({qkv, options.q_norm, options.k_norm}) || kernels_of(qkv, options) != nullptr;
  const bool is_fused = has_loops && are_float32(options.rope) && qkv.numel() > 0 &&
                        options.head_dim <= cpu::kMostHeadDim &&
                        (!options.position_ids.defined() || options.position_ids.is_contiguous());
  if (!is_fused) return split_norm_rotate_reference(qkv, options);
  // Function takes an absent tensor as an empty optional only.
  const auto optional = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  tensor_list out =
      SplitNormRotate::apply(qkv, optional(options.q_norm), optional(options.k_norm), &options);
  return {out[0], out[1], out[2]};
}

bool can_split_again(const Qkv& heads) {
  const auto node = heads.q.grad_fn();
  const auto is_output = [&](const at::Tensor& x, uint32_t number) {
    return x.grad_fn() == node && x.output_nr() == number;
  };
  auto* const splitting = splitting_node(node.get());
  const bool is_whole = splitting != nullptr && is_output(heads.q, 0) && is_output(heads.k, 1) &&
                        is_output(heads.v, 2);
  return is_whole && device::kernels_for({heads.q}) == nullptr &&
         SplitNormRotate::keeps_input(splitting->ctx_);
}

Qkv split_again(torch::autograd::Node& node) {
  auto* const splitting = splitting_node(&node);
  AM_CHECK(splitting != nullptr);
  return SplitNormRotate::again(splitting->ctx_);
}

at::Tensor rotate_last_pairs(const at::Tensor& x, const RopeTable& rope,
                             const at::Tensor& position_ids, RopeDirection direction) {
  const int64_t rotated = 2 * rope.cos.size(1);
  const int64_t plain = x.size(-1) - rotated;
  const at::ScalarType wide = at::promote_types(x.scalar_type(), rope.cos.scalar_type());
  const at::Tensor cos = rows_at(rope.cos, position_ids, x.size(1)).to(wide);
  at::Tensor sin = rows_at(rope.sin, position_ids, x.size(1)).to(wide);
  if (direction == RopeDirection::kBack) sin = sin.neg();
  const at::Tensor pairs = x.narrow(-1, plain, rotated).unflatten(-1, {-1, 2}).to(wide);
  const at::Tensor first = pairs.select(-1, 0), second = pairs.select(-1, 1);
  const at::Tensor turned =
      at::stack({first * cos - second * sin, second * cos + first * sin}, -1).flatten(-2);
  return at::cat({x.narrow(-1, 0, plain), turned.to(x.scalar_type())}, -1);
}

at::Tensor rotate(const at::Tensor& x, const RopeTable& rope, const at::Tensor& position_ids) {
  const int64_t half = rope.cos.size(1);
  const at::ScalarType wide = at::promote_types(x.scalar_type(), rope.cos.scalar_type());
  const at::Tensor cos = rows_at(rope.cos, position_ids, x.size(1)).to(wide);
  const at::Tensor sin = rows_at(rope.sin, position_ids, x.size(1)).to(wide);
  const at::Tensor first = x.narrow(-1, 0, half).to(wide);
  const at::Tensor second = x.narrow(-1, half, half).to(wide);
  std::vector<at::Tensor> parts = {(first * cos - second * sin).to(x.scalar_type()),
                                   (second * cos + first * sin).to(x.scalar_type())};
  const int64_t rest = x.size(-1) - 2 * half;
  if (rest > 0) parts.push_back(x.narrow(-1, 2 * half, rest));
  return at::cat(parts, -1);
}

}  // namespace automodel::kernels
