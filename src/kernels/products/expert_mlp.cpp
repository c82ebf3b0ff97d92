#include "kernels/products/expert_mlp.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <type_traits>
#include <vector>

#include "core/error.h"
#include "kernels/base/fused.h"
#include "kernels/base/pointwise.h"
#include "kernels/products/product.h"

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
  int64_t num_experts() const { return static_cast<int64_t>(begins.size()) - 1; }
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
  const auto* row = rows.row.data_ptr<int64_t>();
  by_storage(values, [&](auto storage) {
    using T = decltype(storage);
    const T* in = numbers_of<T>(values);
    T* out = numbers_of<T>(sums);
    at::parallel_for(0, num_tokens, 64, [&](int64_t begin, int64_t end) {
      std::vector<float> wide(std::is_same_v<T, float> ? 0 : static_cast<size_t>(dim));
      for (int64_t t = begin; t < end; ++t) {
        float* sum = wide.data();
        if constexpr (std::is_same_v<T, float>) sum = out + t * dim;
        std::fill(sum, sum + dim, 0.0F);
        for (int64_t j = 0; j < k; ++j) {
          const int64_t at = row[t * k + j];
          if (at >= 0) cpu::loops().of<T>().add_row(in + at * dim, sum, dim);
        }
        if constexpr (!std::is_same_v<T, float>) cpu::loops().round(sum, out + t * dim, dim);
      }
    });
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
  out.sigmoid = kernels::sigmoid(out.gate * options.alpha);
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
  if (!options.is_gated) return activate(up, options.activation);
  return gated_activation(bounded_gate_up(up, options.bounds), options.activation);
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
  if (!options.is_gated) return activate_backward(d_inner, up, options.activation);
  const at::Tensor bounded = bounded_gate_up(up, options.bounds);
  return bounded_gate_up_backward(gated_activation_backward(d_inner, bounded, options.activation),
                                  up, options.bounds);
}

/// Runs `body(expert, first row, rows)` for every expert that has rows. Each of n threads takes
/// whole experts, the largest first, so that their rows stay in its cache; unless the largest has
/// more than 1.25 / n of all rows, or on an accelerator: then one after the other, with all threads
/// inside.
void for_each_expert(const ExpertRows& rows, bool is_cpu,
                     const std::function<void(int64_t, int64_t, int64_t)>& body) {
  std::vector<int64_t> experts;
  const auto count = [&](int64_t e) {
    return rows.begins[static_cast<size_t>(e) + 1] - rows.begins[static_cast<size_t>(e)];
  };
  for (int64_t e = 0; e < rows.num_experts(); ++e) {
    if (count(e) > 0) experts.push_back(e);
  }
  if (experts.empty()) return;
  const auto run = [&](int64_t e) { body(e, rows.begins[static_cast<size_t>(e)], count(e)); };
  std::ranges::stable_sort(experts, std::greater<>(), count);
  const int64_t num_threads = is_cpu && !at::in_parallel_region() ? at::get_num_threads() : 1;
  const bool is_even = 4 * num_threads * count(experts.front()) <= 5 * rows.num_rows();
  if (num_threads == 1 || !is_even) {
    for (const int64_t e : experts) run(e);
    return;
  }
  std::atomic<size_t> next = 0;
  const bool is_plain = is_plain_path_asked();
  at::parallel_for(0, num_threads, 1, [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_grad;  // the caller's guards are the caller's thread's
    const PlainPathScope path(is_plain);
    for (size_t i = next++; i < experts.size(); i = next++) run(experts[i]);
  });
}

/// What the experts do with their rows, forward and backward.
class ExpertProducts final {
 public:
  ExpertProducts(ExpertWeights weights, const ExpertOptions& options, const ExpertRows& rows)
      : weights_(std::move(weights)), options_(options), rows_(rows) {}

  struct Forward {
    at::Tensor raised;  ///< [A, U]: after the first product
    at::Tensor out;     ///< [A, D]: weighted results
  };

  /// x [T, D], weight [A].
  Forward forward(const at::Tensor& x, const at::Tensor& weight) const {
    const int64_t rows_of_up = weights_.up.size(options_.is_transposed ? 2 : 1);
    const int64_t width = (weights_.gate.defined() ? 2 : 1) * rows_of_up;
    const Forward all{at::empty({rows_.num_rows(), width}, x.options()),
                      at::empty({rows_.num_rows(), x.size(1)}, x.options())};
    for_each_expert(rows_, x.is_cpu(), [&](int64_t e, int64_t begin, int64_t count) {
      const at::Tensor raised = all.raised.narrow(0, begin, count);
      const Factor rows = gathered(x, begin, count);
      for (const Matrix& matrix : first_matrices(e)) {
        product_into(rows, matrix.in_out, matrix.columns_of(raised));
      }
      add_update(rows, weights_.lora.up_a, weights_.lora.up_b, e, raised);
      if (weights_.up_bias.defined()) raised.add_(weights_.up_bias.select(0, e));
      const at::Tensor mine = weight.narrow(0, begin, count).unsqueeze(1);
      const at::Tensor out = all.out.narrow(0, begin, count);
      const at::Tensor weighted = inner(raised, options_).mul_(mine);
      product_into(weighted, in_out(weights_.down, e), out);
      add_update(weighted, weights_.lora.down_a, weights_.lora.down_b, e, out);
      if (weights_.down_bias.defined()) out.add_(mine * weights_.down_bias.select(0, e));
    });
    return all;
  }

  /// What backward has to give; undefined where nobody asks.
  struct Gradients {
    at::Tensor rows;    ///< [A, D]
    at::Tensor weight;  ///< [A]
    ExpertWeights experts;
  };

  struct BackwardInput {
    at::Tensor x;       ///< [T, D]
    at::Tensor raised;  ///< [A, U]
    at::Tensor weight;  ///< [A]
    at::Tensor d_out;   ///< [T, D]
  };

  void backward(const BackwardInput& in, const Gradients& to) const {
    for_each_expert(rows_, in.x.is_cpu(), [&](int64_t e, int64_t begin, int64_t count) {
      const Factor d_rows = gathered(in.d_out, begin, count);
      const at::Tensor d_raised = down_backward(e, begin, d_rows, in, to);
      if (to.experts.up.defined()) {
        weight_gradient(gathered(in.x, begin, count), up_columns(d_raised),
                        to.experts.up.select(0, e));
      }
      if (to.experts.gate.defined()) {
        weight_gradient(gathered(in.x, begin, count), d_raised.narrow(1, 0, first_up_column()),
                        to.experts.gate.select(0, e));
      }
      if (to.experts.up_bias.defined()) to.experts.up_bias.select(0, e).copy_(d_raised.sum(0));
      const at::Tensor d_small = weights_.lora.is_there()
                                     ? up_gradients(e, gathered(in.x, begin, count), d_raised, to)
                                     : at::Tensor();
      if (!to.rows.defined()) return;
      const at::Tensor d_x = to.rows.narrow(0, begin, count);
      bool adds = false;
      for (const Matrix& matrix : first_matrices(e)) {
        product_into(matrix.columns_of(d_raised), matrix.in_out.t(), d_x, {.adds = adds});
        adds = true;
      }
      if (d_small.defined()) {
        product_into(d_small, weights_.lora.up_a.select(0, e), d_x, {.adds = true});
      }
    });
  }

 private:
  /// From an expert's d_out by rows [count, D] to the gradient of its first product [count, U].
  at::Tensor down_backward(int64_t e, int64_t begin, const Factor& d_rows, const BackwardInput& in,
                           const Gradients& to) const {
    const int64_t count = d_rows.size(0);
    const at::Tensor weight = in.weight.narrow(0, begin, count).unsqueeze(1);
    const at::Tensor raised = in.raised.narrow(0, begin, count);
    const int64_t inner_dim = weights_.down.size(options_.is_transposed ? 1 : 2);
    at::Tensor d_inner = at::empty({count, inner_dim}, in.d_out.options());
    product_into(d_rows, in_out(weights_.down, e).t(), d_inner);
    const bool has_lora = weights_.lora.is_there();
    if (to.weight.defined() || to.experts.down.defined() || has_lora) {
      at::Tensor plain = inner(raised, options_);
      if (has_lora) down_gradients(e, plain * weight, d_rows, d_inner, to);
      if (to.weight.defined()) {
        at::Tensor d_weight = (d_inner * plain).sum(1);
        if (weights_.down_bias.defined()) {
          d_weight.add_(at::mv(d_rows.tensor(), weights_.down_bias.select(0, e)));
        }
        to.weight.narrow(0, begin, count).copy_(d_weight);
      }
      if (to.experts.down.defined()) {
        weight_gradient(plain.mul_(weight), d_rows, to.experts.down.select(0, e));
      }
    }
    if (to.experts.down_bias.defined()) {
      to.experts.down_bias.select(0, e).copy_((d_rows.tensor() * weight).sum(0));
    }
    return inner_backward(d_inner.mul_(weight), raised, options_);
  }

  /// The gradient of one expert's matrix, of the rows that went in and what came back.
  void weight_gradient(const Factor& input, const Factor& d_output, const at::Tensor& to) const {
    if (options_.is_transposed) {
      product_into(input.t(), d_output, to);
    } else {
      product_into(d_output.t(), input, to);
    }
  }

  /// Adds to `out` what an expert's adapter makes of the input of one of its products.
  void add_update(const Factor& input, const at::Tensor& a, const at::Tensor& b, int64_t e,
                  const at::Tensor& out) const {
    if (!a.defined()) return;
    product_into(product(input, Factor(a.select(0, e)).t()), Factor(b.select(0, e)).t(), out,
                 {.adds = true, .alpha = weights_.lora.scale});
  }

  /// The gradients of one adapter's factors; returns that of input A^T [count, r].
  at::Tensor factor_gradients(int64_t e, const Factor& input, const Factor& d_output,
                              const at::Tensor& a, const at::Tensor& b, const at::Tensor& to_a,
                              const at::Tensor& to_b) const {
    const at::Tensor small = product(input, Factor(a.select(0, e)).t());
    const at::Tensor d_small = at::empty_like(small);
    product_into(d_output, b.select(0, e), d_small, {.alpha = weights_.lora.scale});
    product_into(d_output.t(), small, to_b.select(0, e), {.alpha = weights_.lora.scale});
    product_into(Factor(d_small).t(), input, to_a.select(0, e));
    return d_small;
  }

  at::Tensor up_gradients(int64_t e, const Factor& rows, const at::Tensor& d_raised,
                          const Gradients& to) const {
    return factor_gradients(e, rows, d_raised, weights_.lora.up_a, weights_.lora.up_b,
                            to.experts.lora.up_a, to.experts.lora.up_b);
  }

  /// Adds the adapter's part to the gradient of the second product's input.
  void down_gradients(int64_t e, const at::Tensor& weighted, const Factor& d_rows,
                      const at::Tensor& d_inner, const Gradients& to) const {
    const at::Tensor d_small =
        factor_gradients(e, weighted, d_rows, weights_.lora.down_a, weights_.lora.down_b,
                         to.experts.lora.down_a, to.experts.lora.down_b);
    product_into(d_small, weights_.lora.down_a.select(0, e), d_inner, {.adds = true});
  }

  /// Some tokens' rows; products by loops read them where they are.
  Factor gathered(const at::Tensor& x, int64_t begin, int64_t count) const {
    const Factor rows(x, rows_.token.narrow(0, begin, count));
    return is_fusable({x}) ? rows : Factor(rows.tensor());
  }

  /// The first column of the first products' results that is up's.
  int64_t first_up_column() const { return weights_.gate.defined() ? weights_.gate.size(1) : 0; }
  at::Tensor up_columns(const at::Tensor& raised) const {
    const int64_t first = first_up_column();
    return raised.narrow(1, first, raised.size(1) - first);
  }

  /// A matrix of an expert's first product, and the columns of the result that it makes.
  struct Matrix {
    at::Tensor in_out;
    int64_t first_column = 0;

    at::Tensor columns_of(const at::Tensor& raised) const {
      return raised.narrow(1, first_column, in_out.size(1));
    }
  };
  /// One, or the gate's and up's.
  std::vector<Matrix> first_matrices(int64_t e) const {
    std::vector<Matrix> matrices;
    if (weights_.gate.defined()) matrices.push_back({in_out(weights_.gate, e)});
    matrices.push_back({in_out(weights_.up, e), first_up_column()});
    return matrices;
  }

  /// One expert's matrix as [in, out].
  at::Tensor in_out(const at::Tensor& weight, int64_t e) const {
    return options_.is_transposed ? weight.select(0, e) : weight.select(0, e).t();
  }

  ExpertWeights weights_;
  const ExpertOptions& options_;
  const ExpertRows& rows_;
};

/// Tensors that may be absent come last: needs_input_grad counts the present ones only. Gates that
/// lie apart are never there together with biases.
struct ExpertMlp : torch::autograd::Function<ExpertMlp> {
  static at::Tensor forward(
      AutogradContext* context, const at::Tensor& x, const at::Tensor& expert_ids,
      const at::Tensor& weights, const at::Tensor& up, const at::Tensor& down,
      const std::optional<at::Tensor>& gate, const std::optional<at::Tensor>& up_bias,
      const std::optional<at::Tensor>& down_bias, const std::optional<at::Tensor>& up_a,
      const std::optional<at::Tensor>& up_b, const std::optional<at::Tensor>& down_a,
      const std::optional<at::Tensor>& down_b, double scale, const ExpertOptions* options) {
    const ExpertRows rows = sort_by_expert(expert_ids, up.size(0));
    const ExpertLora lora{or_none(up_a), or_none(up_b), or_none(down_a), or_none(down_b), scale};
    const ExpertProducts products(
        {up, or_none(up_bias), down, or_none(down_bias), lora, or_none(gate)}, *options, rows);
    const auto [raised, out] = products.forward(x, row_weights(weights, rows, x.scalar_type()));
    context->save_for_backward({x, weights, up, or_none(up_bias), down, or_none(down_bias), raised,
                                rows.token, rows.choice, rows.row, lora.up_a, lora.up_b,
                                lora.down_a, lora.down_b, or_none(gate)});
    context->saved_data["begins"] = rows.begins;
    context->saved_data["scale"] = scale;
    save_options(context, *options);
    return sum_choices(out, rows);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weights = saved[1];
    const ExpertLora lora{saved[10], saved[11], saved[12], saved[13],
                          context->saved_data["scale"].toDouble()};
    const ExpertWeights experts{saved[2], saved[3], saved[4], saved[5], lora, saved[14]};
    const ExpertRows rows{saved[7], saved[8], saved[9],
                          context->saved_data["begins"].toIntVector()};
    const ExpertOptions options = saved_options(context);
    const at::Tensor weight = row_weights(weights, rows, x.scalar_type());
    const auto wanted = [&](size_t input, const at::Tensor& like) {
      const bool is_wanted = like.defined() && context->needs_input_grad(input);
      return is_wanted ? gradient_of(like, rows) : at::Tensor();
    };
    const ExpertProducts::Gradients to{
        context->needs_input_grad(0) ? at::empty({rows.num_rows(), x.size(1)}, x.options())
                                     : at::Tensor(),
        context->needs_input_grad(2) ? at::empty_like(weight) : at::Tensor(),
        {wanted(3, experts.up), wanted(5, experts.up_bias), wanted(4, experts.down),
         wanted(6, experts.down_bias), lora_gradients(lora, rows), wanted(5, experts.gate)}};
    ExpertProducts(experts, options, rows)
        .backward({x, saved[6], weight, gradients[0].contiguous()}, to);
    tensor_list result(14);
    if (to.rows.defined()) result[0] = sum_choices(to.rows, rows);
    if (to.weight.defined()) {
      result[2] = at::zeros({weights.numel()}, weights.options())
                      .index_copy_(0, rows.choice, to.weight.to(weights.scalar_type()))
                      .view(weights.sizes());
    }
    result[3] = to.experts.up;
    result[4] = to.experts.down;
    result[5] = to.experts.gate;
    result[6] = to.experts.up_bias;
    result[7] = to.experts.down_bias;
    result[8] = to.experts.lora.up_a;
    result[9] = to.experts.lora.up_b;
    result[10] = to.experts.lora.down_a;
    result[11] = to.experts.lora.down_b;
    return result;
  }

 private:
  static at::Tensor or_none(const std::optional<at::Tensor>& tensor) {
    return tensor.value_or(at::Tensor());
  }

  /// Adapters are always trained.
  static ExpertLora lora_gradients(const ExpertLora& lora, const ExpertRows& rows) {
    if (!lora.is_there()) return {};
    return {gradient_of(lora.up_a, rows), gradient_of(lora.up_b, rows),
            gradient_of(lora.down_a, rows), gradient_of(lora.down_b, rows), lora.scale};
  }

  /// Room for the gradient of [E, …], zero for the experts that have no rows.
  static at::Tensor gradient_of(const at::Tensor& weight, const ExpertRows& rows) {
    at::Tensor out = at::empty_like(weight);
    for (int64_t e = 0; e < rows.num_experts(); ++e) {
      const auto at = static_cast<size_t>(e);
      if (rows.begins[at] == rows.begins[at + 1]) out.select(0, e).zero_();
    }
    return out;
  }

  static void save_options(AutogradContext* context, const ExpertOptions& options) {
    context->saved_data["activation"] = static_cast<int64_t>(options.activation);
    context->saved_data["is_gated"] = options.is_gated;
    context->saved_data["is_transposed"] = options.is_transposed;
    context->saved_data["is_clamped"] = options.is_clamped;
    context->saved_data["alpha"] = options.alpha;
    context->saved_data["limit"] = options.limit;
    context->saved_data["gate_bound"] = options.bounds.gate;
    context->saved_data["up_bound"] = options.bounds.up;
  }

  static ExpertOptions saved_options(AutogradContext* context) {
    auto& data = context->saved_data;
    return {static_cast<Activation>(data["activation"].toInt()),
            data["is_gated"].toBool(),
            data["is_transposed"].toBool(),
            data["is_clamped"].toBool(),
            data["alpha"].toDouble(),
            data["limit"].toDouble(),
            {data["gate_bound"].toDouble(), data["up_bound"].toDouble()}};
  }
};

std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

}  // namespace

at::Tensor expert_mlp(const at::Tensor& x, const at::Tensor& expert_ids, const at::Tensor& weights,
                      const ExpertWeights& experts, const ExpertOptions& options) {
  const ExpertLora& lora = experts.lora;
  AM_CHECK(experts.up_bias.defined() == experts.down_bias.defined());
  AM_CHECK(!experts.gate.defined() || !(experts.up_bias.defined() || options.is_transposed));
  AM_CHECK(!lora.is_there() || !(experts.up.requires_grad() || experts.down.requires_grad()),
           "experts under adapters are frozen");
  return ExpertMlp::apply(x, expert_ids, weights, experts.up, experts.down, optional(experts.gate),
                          optional(experts.up_bias), optional(experts.down_bias),
                          optional(lora.up_a), optional(lora.up_b), optional(lora.down_a),
                          optional(lora.down_b), lora.scale, &options);
}

at::Tensor expert_mlp_reference(const at::Tensor& x, const at::Tensor& expert_ids,
                                const at::Tensor& weights, const ExpertWeights& experts,
                                const ExpertOptions& options) {
  if (experts.gate.defined()) {
    ExpertWeights joined = experts;
    joined.up = at::cat({experts.gate, experts.up}, 1);
    joined.gate = at::Tensor();
    return expert_mlp_reference(x, expert_ids, weights, joined, options);
  }
  const ExpertLora& lora = experts.lora;
  const auto product = [&](const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias,
                           const at::Tensor& a, const at::Tensor& b, int64_t e) {
    const at::Tensor matrix = weight.select(0, e);
    at::Tensor out = at::matmul(rows, options.is_transposed ? matrix : matrix.t());
    if (a.defined()) {
      out = out + at::linear(at::linear(rows, a.select(0, e)), b.select(0, e)) * lora.scale;
    }
    return bias.defined() ? out + bias.select(0, e) : out;
  };
  at::Tensor out = at::zeros_like(x);
  for (int64_t j = 0; j < expert_ids.size(1); ++j) {
    for (int64_t e = 0; e < experts.up.size(0); ++e) {
      const at::Tensor tokens = expert_ids.select(1, j).eq(e).nonzero().squeeze(1);
      if (tokens.size(0) == 0) continue;
      const at::Tensor raised =
          product(x.index_select(0, tokens), experts.up, experts.up_bias, lora.up_a, lora.up_b, e);
      const at::Tensor bounded = bounded_gate_up(raised, options.bounds);
      const int64_t half = raised.size(1) / 2;
      const at::Tensor result =
          product(options.is_clamped || !options.is_gated
                      ? inner(raised, options)
                      : activate(bounded.narrow(1, 0, half), options.activation) *
                            bounded.narrow(1, half, half),
                  experts.down, experts.down_bias, lora.down_a, lora.down_b, e);
      const at::Tensor weight = weights.select(1, j).index_select(0, tokens).unsqueeze(1);
      out = out.index_add(0, tokens, result * weight.to(x.scalar_type()));
    }
  }
  return out;
}

}  // namespace automodel::kernels
