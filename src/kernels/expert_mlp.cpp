#include "kernels/expert_mlp.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "core/error.h"
#include "kernels/fused.h"
#include "kernels/linear.h"

// T tokens of D dims choose k of E experts with I inner dims; A is the number of choices, which lie
// in rows, expert after expert.

namespace automodel::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// Which row stands for which choice.
struct ExpertRows {
  at::Tensor token;             ///< [A] int64 on x's device: the token of each row
  at::Tensor choice;            ///< [A] int64 on x's device: t * k + j
  at::Tensor row;               ///< [T, k] int64 on the CPU: of each choice; -1: none
  std::vector<int64_t> begins;  ///< [E + 1]: first row of each expert

  int64_t num_rows() const { return begins.back(); }
};

/// Tokens of one expert stay in order. On an accelerator the ids are read back.
ExpertRows sort_by_expert(const at::Tensor& expert_ids, int64_t num_experts) {
  const at::Tensor ids = expert_ids.cpu().contiguous();
  const int64_t* id = ids.data_ptr<int64_t>();
  const int64_t num_choices = ids.numel();
  const int64_t k = ids.size(1);
  ExpertRows rows;
  rows.begins.assign(static_cast<size_t>(num_experts) + 1, 0);
  for (int64_t i = 0; i < num_choices; ++i) {
    AM_CHECK(id[i] < num_experts, "expert ", id[i], " of ", num_experts);
    if (id[i] >= 0) ++rows.begins[static_cast<size_t>(id[i]) + 1];
  }
  for (size_t e = 1; e < rows.begins.size(); ++e) rows.begins[e] += rows.begins[e - 1];
  std::vector<int64_t> next(rows.begins.begin(), rows.begins.end() - 1);
  rows.token = at::empty({rows.num_rows()}, ids.options());
  rows.choice = at::empty({rows.num_rows()}, ids.options());
  rows.row = at::empty_like(ids);
  auto* token = rows.token.data_ptr<int64_t>();
  auto* choice = rows.choice.data_ptr<int64_t>();
  auto* row = rows.row.data_ptr<int64_t>();
  for (int64_t i = 0; i < num_choices; ++i) {
    row[i] = -1;
    if (id[i] < 0) continue;
    const int64_t at = next[static_cast<size_t>(id[i])]++;
    token[at] = i / k;
    choice[at] = i;
    row[i] = at;
  }
  rows.token = rows.token.to(expert_ids.device());
  rows.choice = rows.choice.to(expert_ids.device());
  return rows;
}

/// out = a b, in float32 where the CPU is slow at 16 bits.
void multiply(const at::Tensor& a, const at::Tensor& b, at::Tensor out) {
  const bool is_narrow = out.scalar_type() == at::kHalf ||
                         (out.scalar_type() == at::kBFloat16 && !has_fast_bfloat16_products());
  if (out.is_cpu() && is_narrow) {
    out.copy_(at::mm(a.to(at::kFloat), b.to(at::kFloat)));
  } else {
    at::mm_out(out, a, b);
  }
}

/// Row t of the result is the sum of the rows of t's choices, in their order.
at::Tensor sum_choices(const at::Tensor& values, const ExpertRows& rows) {
  const int64_t num_tokens = rows.row.size(0);
  const int64_t k = rows.row.size(1);
  const int64_t dim = values.size(1);
  if (!is_fusable({values})) {
    const at::Tensor sums =
        at::zeros({num_tokens, dim},
                  values.options().dtype(at::promote_types(values.scalar_type(), at::kFloat)));
    return sums.index_add_(0, rows.token, values.to(sums.scalar_type())).to(values.scalar_type());
  }
  at::Tensor sums = at::empty({num_tokens, dim}, values.options());
  const float* in = values.data_ptr<float>();
  float* out = sums.data_ptr<float>();
  const auto* row = rows.row.data_ptr<int64_t>();
  at::parallel_for(0, num_tokens, 64, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* sum = out + t * dim;
      std::fill(sum, sum + dim, 0.0F);
      for (int64_t j = 0; j < k; ++j) {
        const int64_t at = row[t * k + j];
        if (at < 0) continue;
        const float* value = in + at * dim;
        for (int64_t d = 0; d < dim; ++d) sum[d] += value[d];
      }
    }
  });
  return sums;
}

struct ClampedGate {
  at::Tensor gate;
  at::Tensor up;
  at::Tensor sigmoid;
};

ClampedGate clamped_gate(const at::Tensor& up, const ExpertOptions& options) {
  const at::Tensor pairs = up.view({up.size(0), -1, 2});
  ClampedGate out;
  out.gate = pairs.select(2, 0).clamp(std::nullopt, options.limit);
  out.up = pairs.select(2, 1).clamp(-options.limit, options.limit) + 1;
  out.sigmoid = at::sigmoid(out.gate * options.alpha);
  return out;
}

/// A choice's weight, row by row.
at::Tensor row_weights(const at::Tensor& weights, const ExpertRows& rows, at::ScalarType dtype) {
  return weights.reshape({-1}).index_select(0, rows.choice).to(dtype);
}

/// [A, U] to [A, I].
at::Tensor inner(const at::Tensor& up, const ExpertOptions& options) {
  if (options.is_clamped) {
    const ClampedGate gate = clamped_gate(up, options);
    return gate.gate * gate.sigmoid * gate.up;
  }
  return options.is_gated ? gated_activation(up, options.activation)
                          : activate(up, options.activation);
}

at::Tensor inner_backward(const at::Tensor& d_inner, const at::Tensor& up,
                          const ExpertOptions& options) {
  if (options.is_clamped) {
    const ClampedGate gate = clamped_gate(up, options);
    const at::Tensor pairs = up.view({up.size(0), -1, 2});
    const at::Tensor slope = gate.sigmoid * (1 + options.alpha * gate.gate * (1 - gate.sigmoid));
    at::Tensor d_up = at::empty_like(up);
    const at::Tensor d_pairs = d_up.view({up.size(0), -1, 2});
    d_pairs.select(2, 0).copy_(
        (d_inner * gate.up * slope).masked_fill_(pairs.select(2, 0) > options.limit, 0));
    d_pairs.select(2, 1).copy_((d_inner * gate.gate * gate.sigmoid)
                                   .masked_fill_(pairs.select(2, 1).abs() > options.limit, 0));
    return d_up;
  }
  return options.is_gated ? gated_activation_backward(d_inner, up, options.activation)
                          : activate_backward(d_inner, up, options.activation);
}

/// The products of all experts, forward and backward.
class ExpertProducts final {
 public:
  ExpertProducts(ExpertWeights weights, const ExpertOptions& options, const ExpertRows& rows)
      : weights_(std::move(weights)), options_(options), rows_(rows) {}

  at::Tensor up(const at::Tensor& x) const {
    const int64_t width = weights_.up.size(options_.is_transposed ? 2 : 1);
    at::Tensor out = at::empty({rows_.num_rows(), width}, x.options());
    for_each_expert([&](int64_t e, int64_t begin, int64_t count) {
      const at::Tensor mine = out.narrow(0, begin, count);
      multiply(gathered(x, begin, count), in_out(weights_.up, e), mine);
      if (weights_.up_bias.defined()) mine.add_(weights_.up_bias.select(0, e));
    });
    return out;
  }

  /// weighted_inner [A, I], weight [A] to [A, D].
  at::Tensor down(const at::Tensor& weighted_inner, const at::Tensor& weight) const {
    const int64_t dim = weights_.down.size(options_.is_transposed ? 2 : 1);
    at::Tensor out = at::empty({rows_.num_rows(), dim}, weighted_inner.options());
    for_each_expert([&](int64_t e, int64_t begin, int64_t count) {
      const at::Tensor mine = out.narrow(0, begin, count);
      multiply(weighted_inner.narrow(0, begin, count), in_out(weights_.down, e), mine);
      if (weights_.down_bias.defined()) {
        mine.add_(weight.narrow(0, begin, count).unsqueeze(1) * weights_.down_bias.select(0, e));
      }
    });
    return out;
  }

  /// From d_out [T, D] to d of weighted inner [A, I]; adds what the second bias gives to d_weight
  /// [A] when that is defined.
  at::Tensor down_backward(const at::Tensor& d_out, const at::Tensor& d_weight) const {
    const int64_t width = weights_.down.size(options_.is_transposed ? 1 : 2);
    at::Tensor out = at::empty({rows_.num_rows(), width}, d_out.options());
    for_each_expert([&](int64_t e, int64_t begin, int64_t count) {
      const at::Tensor d_rows = gathered(d_out, begin, count);
      multiply(d_rows, in_out(weights_.down, e).t(), out.narrow(0, begin, count));
      if (weights_.down_bias.defined() && d_weight.defined()) {
        d_weight.narrow(0, begin, count).add_(at::mv(d_rows, weights_.down_bias.select(0, e)));
      }
    });
    return out;
  }

  /// From d_up [A, U] to d of the rows [A, D].
  at::Tensor up_backward(const at::Tensor& d_up) const {
    const int64_t dim = weights_.up.size(options_.is_transposed ? 1 : 2);
    at::Tensor out = at::empty({rows_.num_rows(), dim}, d_up.options());
    for_each_expert([&](int64_t e, int64_t begin, int64_t count) {
      multiply(d_up.narrow(0, begin, count), in_out(weights_.up, e).t(),
               out.narrow(0, begin, count));
    });
    return out;
  }

  /// Gradient of one of the two weights: row by row `input` (gathered from tokens or not) times
  /// `d_output`.
  template <typename Rows, typename DRows>
  at::Tensor weight_gradient(const at::Tensor& weight, Rows&& input, DRows&& d_output) const {
    at::Tensor out = at::empty_like(weight);
    for (int64_t e = 0; e < weight.size(0); ++e) {
      const int64_t begin = rows_.begins[static_cast<size_t>(e)];
      const int64_t count = rows_.begins[static_cast<size_t>(e) + 1] - begin;
      at::Tensor mine = out.select(0, e);
      if (count == 0) {
        mine.zero_();
      } else if (options_.is_transposed) {
        multiply(input(begin, count).t(), d_output(begin, count), mine);
      } else {
        multiply(d_output(begin, count).t(), input(begin, count), mine);
      }
    }
    return out;
  }

  template <typename DRows>
  at::Tensor bias_gradient(const at::Tensor& bias, DRows&& d_output) const {
    at::Tensor out = at::zeros_like(bias);
    for_each_expert([&](int64_t e, int64_t begin, int64_t count) {
      out.select(0, e).copy_(d_output(begin, count).sum(0));
    });
    return out;
  }

  at::Tensor gathered(const at::Tensor& x, int64_t begin, int64_t count) const {
    return x.index_select(0, rows_.token.narrow(0, begin, count));
  }

 private:
  /// One expert's matrix as [in, out].
  at::Tensor in_out(const at::Tensor& weight, int64_t e) const {
    return options_.is_transposed ? weight.select(0, e) : weight.select(0, e).t();
  }

  template <typename Body>
  void for_each_expert(Body&& body) const {
    for (size_t e = 0; e + 1 < rows_.begins.size(); ++e) {
      const int64_t count = rows_.begins[e + 1] - rows_.begins[e];
      if (count > 0) body(static_cast<int64_t>(e), rows_.begins[e], count);
    }
  }

  ExpertWeights weights_;
  const ExpertOptions& options_;
  const ExpertRows& rows_;
};

/// Tensors that may be absent come last: needs_input_grad counts the present ones only.
struct ExpertMlp : torch::autograd::Function<ExpertMlp> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& expert_ids, const at::Tensor& weights,
                            const at::Tensor& up, const at::Tensor& down,
                            const std::optional<at::Tensor>& up_bias,
                            const std::optional<at::Tensor>& down_bias,
                            const ExpertOptions* options) {
    const ExpertRows rows = sort_by_expert(expert_ids, up.size(0));
    const ExpertProducts products(
        {up, up_bias.value_or(at::Tensor()), down, down_bias.value_or(at::Tensor())}, *options,
        rows);
    const at::Tensor raised = products.up(x);
    const at::Tensor weight = row_weights(weights, rows, x.scalar_type());
    at::Tensor weighted = inner(raised, *options);
    weighted.mul_(weight.unsqueeze(1));
    const at::Tensor out = sum_choices(products.down(weighted, weight), rows);
    context->save_for_backward({x, weights, up, up_bias.value_or(at::Tensor()), down,
                                down_bias.value_or(at::Tensor()), raised, rows.token, rows.choice,
                                rows.row});
    context->saved_data["begins"] = rows.begins;
    save_options(context, *options);
    return out;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weights = saved[1];
    const ExpertWeights experts{saved[2], saved[3], saved[4], saved[5]};
    const at::Tensor& raised = saved[6];
    const ExpertRows rows{saved[7], saved[8], saved[9],
                          context->saved_data["begins"].toIntVector()};
    const ExpertOptions options = saved_options(context);
    const ExpertProducts products(experts, options, rows);
    const at::Tensor d_out = gradients[0].contiguous();
    const at::Tensor weight = row_weights(weights, rows, x.scalar_type());

    tensor_list result(8);
    at::Tensor d_row_weight;
    if (context->needs_input_grad(2)) d_row_weight = at::zeros_like(weight);
    at::Tensor d_inner = products.down_backward(d_out, d_row_weight);
    const at::Tensor plain = inner(raised, options);
    if (d_row_weight.defined()) {
      d_row_weight.add_((d_inner * plain).sum(1));
      result[2] = at::zeros({weights.numel()}, weights.options())
                      .index_copy_(0, rows.choice, d_row_weight.to(weights.scalar_type()))
                      .view(weights.sizes());
    }
    const auto d_result = [&](int64_t begin, int64_t count) {
      return products.gathered(d_out, begin, count);
    };
    if (context->needs_input_grad(4)) {
      const at::Tensor weighted = plain * weight.unsqueeze(1);
      result[4] = products.weight_gradient(
          experts.down,
          [&](int64_t begin, int64_t count) { return weighted.narrow(0, begin, count); }, d_result);
    }
    if (experts.down_bias.defined() && context->needs_input_grad(6)) {
      result[6] = products.bias_gradient(experts.down_bias, [&](int64_t begin, int64_t count) {
        return d_result(begin, count) * weight.narrow(0, begin, count).unsqueeze(1);
      });
    }
    d_inner.mul_(weight.unsqueeze(1));
    const at::Tensor d_raised = inner_backward(d_inner, raised, options);
    const auto d_rows = [&](int64_t begin, int64_t count) {
      return d_raised.narrow(0, begin, count);
    };
    if (context->needs_input_grad(3)) {
      result[3] = products.weight_gradient(
          experts.up,
          [&](int64_t begin, int64_t count) { return products.gathered(x, begin, count); }, d_rows);
    }
    if (experts.up_bias.defined() && context->needs_input_grad(5)) {
      result[5] = products.bias_gradient(experts.up_bias, d_rows);
    }
    if (context->needs_input_grad(0)) result[0] = sum_choices(products.up_backward(d_raised), rows);
    return result;
  }

 private:
  static void save_options(AutogradContext* context, const ExpertOptions& options) {
    context->saved_data["activation"] = static_cast<int64_t>(options.activation);
    context->saved_data["is_gated"] = options.is_gated;
    context->saved_data["is_transposed"] = options.is_transposed;
    context->saved_data["is_clamped"] = options.is_clamped;
    context->saved_data["alpha"] = options.alpha;
    context->saved_data["limit"] = options.limit;
  }

  static ExpertOptions saved_options(AutogradContext* context) {
    auto& data = context->saved_data;
    return {static_cast<Activation>(data["activation"].toInt()),
            data["is_gated"].toBool(),
            data["is_transposed"].toBool(),
            data["is_clamped"].toBool(),
            data["alpha"].toDouble(),
            data["limit"].toDouble()};
  }
};

std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

}  // namespace

at::Tensor expert_mlp(const at::Tensor& x, const at::Tensor& expert_ids, const at::Tensor& weights,
                      const ExpertWeights& experts, const ExpertOptions& options) {
  AM_CHECK(experts.up_bias.defined() == experts.down_bias.defined());
  return ExpertMlp::apply(x, expert_ids, weights, experts.up, experts.down,
                          optional(experts.up_bias), optional(experts.down_bias), &options);
}

at::Tensor expert_mlp_reference(const at::Tensor& x, const at::Tensor& expert_ids,
                                const at::Tensor& weights, const ExpertWeights& experts,
                                const ExpertOptions& options) {
  const auto product = [&](const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias,
                           int64_t e) {
    const at::Tensor matrix = weight.select(0, e);
    const at::Tensor out = at::matmul(rows, options.is_transposed ? matrix : matrix.t());
    return bias.defined() ? out + bias.select(0, e) : out;
  };
  at::Tensor out = at::zeros_like(x);
  for (int64_t j = 0; j < expert_ids.size(1); ++j) {
    for (int64_t e = 0; e < experts.up.size(0); ++e) {
      const at::Tensor tokens = expert_ids.select(1, j).eq(e).nonzero().squeeze(1);
      if (tokens.size(0) == 0) continue;
      const at::Tensor raised = product(x.index_select(0, tokens), experts.up, experts.up_bias, e);
      const at::Tensor result =
          product(options.is_clamped || !options.is_gated
                      ? inner(raised, options)
                      : activate(raised.narrow(1, 0, raised.size(1) / 2), options.activation) *
                            raised.narrow(1, raised.size(1) / 2, raised.size(1) / 2),
                  experts.down, experts.down_bias, e);
      const at::Tensor weight = weights.select(1, j).index_select(0, tokens).unsqueeze(1);
      out = out.index_add(0, tokens, result * weight.to(x.scalar_type()));
    }
  }
  return out;
}

}  // namespace automodel::kernels
