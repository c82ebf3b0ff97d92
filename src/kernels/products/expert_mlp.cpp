#include "kernels/products/expert_mlp.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <vector>

#include "core/error.h"
#include "kernels/base/fused.h"
#include "kernels/base/pointwise.h"
#include "kernels/device/device_kernels.h"
#include "kernels/products/expert_rows.h"
#include "kernels/products/kept_input.h"
#include "kernels/products/product.h"

// T tokens of D dims choose k of E experts with I inner dims; A is the number of choices, which lie
// in rows, expert after expert.

namespace automodel::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// In place of an expert: all of them, whose products PyTorch computes at once.
constexpr int64_t kAllExperts = -1;

/// Whether PyTorch multiplies the rows of all experts at once without asking how many they are.
bool has_grouped_products(const at::Tensor& x, const ExpertWeights& experts) {
  const ExpertLora& lora = experts.lora;
  const auto* const kernels = device::kernels_for(
      {x, experts.up, experts.down, experts.gate, lora.up_a, lora.up_b, lora.down_a, lora.down_b});
  constexpr int64_t kMostExperts = 1023;  // that PyTorch's kernels take
  if (kernels == nullptr || x.scalar_type() != at::kBFloat16 || x.size(0) == 0 ||
      experts.down.size(0) > kMostExperts) {
    return false;
  }
  constexpr int64_t kWhole = 8;  // numbers of the 16 bytes at whose multiples rows have to begin
  const auto fits = [](const at::Tensor& weight) {
    return !weight.defined() || (weight.size(1) % kWhole == 0 && weight.size(2) % kWhole == 0);
  };
  // The first product's matrices have the sizes of the second's, the inner one once or twice.
  return fits(experts.down) && fits(lora.up_a) && fits(lora.up_b) && fits(lora.down_a) &&
         fits(lora.down_b) && kernels->has_grouped_products();
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

/// Runs `body(expert, first row, rows)` for every expert that has rows, or once for all. Each of n
/// threads takes whole experts, the largest first, so that their rows stay in its cache; unless the
/// largest has more than 1.25 / n of all rows, or on an accelerator: then one after the other, with
/// all threads inside.
void for_each_expert(const ExpertRows& rows, bool is_cpu,
                     const std::function<void(int64_t, int64_t, int64_t)>& body) {
  if (rows.is_on_device()) return body(kAllExperts, 0, rows.num_rows());
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
    Forward all;
    if (!rows_.is_on_device() || weights_.gate.defined()) {
      all.raised = at::empty({rows_.num_rows(), width}, x.options());
    }
    if (!rows_.is_on_device()) all.out = at::empty({rows_.num_rows(), x.size(1)}, x.options());
    for_each_expert(rows_, x.is_cpu(), [&](int64_t e, int64_t begin, int64_t count) {
      const Factor rows = gathered(x, begin, count);
      for (const Matrix& matrix : first_matrices(e)) {
        if (all.raised.defined()) {
          multiply(rows, matrix.in_out, matrix.columns_of(all.raised.narrow(0, begin, count)));
        } else {
          all.raised = grouped(rows, matrix.in_out);
        }
      }
      const at::Tensor raised = all.raised.narrow(0, begin, count);
      add_update(rows, weights_.lora.up_a, weights_.lora.up_b, e, raised);
      if (weights_.up_bias.defined()) raised.add_(bias_of(weights_.up_bias, e));
      const at::Tensor mine = weight.narrow(0, begin, count).unsqueeze(1);
      const at::Tensor weighted = inner(raised, options_).mul_(mine);
      const at::Tensor down = in_out(weights_.down, e);
      if (e == kAllExperts) {
        all.out = grouped(weighted, down);
      } else {
        product_into(weighted, down, all.out.narrow(0, begin, count));
      }
      const at::Tensor out = all.out.narrow(0, begin, count);
      add_update(weighted, weights_.lora.down_a, weights_.lora.down_b, e, out);
      if (weights_.down_bias.defined()) out.add_(mine * bias_of(weights_.down_bias, e));
    });
    return all;
  }

  /// What backward has to give; undefined where nobody asks. What is there is filled, or replaced
  /// by what the products of all experts give.
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

  void backward(const BackwardInput& in, Gradients& to) const {
    for_each_expert(rows_, in.x.is_cpu(), [&](int64_t e, int64_t begin, int64_t count) {
      const Factor d_rows = gathered(in.d_out, begin, count);
      const at::Tensor d_raised = down_backward(e, begin, d_rows, in, to);
      if (to.experts.up.defined()) {
        weight_gradient(e, gathered(in.x, begin, count), up_columns(d_raised), to.experts.up);
      }
      if (to.experts.gate.defined()) {
        weight_gradient(e, gathered(in.x, begin, count), d_raised.narrow(1, 0, first_up_column()),
                        to.experts.gate);
      }
      if (to.experts.up_bias.defined()) bias_gradient(e, d_raised, to.experts.up_bias);
      const at::Tensor d_small = weights_.lora.is_there()
                                     ? up_gradients(e, gathered(in.x, begin, count), d_raised, to)
                                     : at::Tensor();
      if (!to.rows.defined()) return;
      bool adds = false;
      for (const Matrix& matrix : first_matrices(e)) {
        const at::Tensor columns = matrix.columns_of(d_raised);
        if (e == kAllExperts && !adds) {
          to.rows = grouped(columns, matrix.in_out.transpose(-2, -1));
        } else {
          multiply(columns, matrix.in_out.transpose(-2, -1), to.rows.narrow(0, begin, count),
                   {.adds = adds});
        }
        adds = true;
      }
      if (d_small.defined()) {
        multiply(d_small, of(weights_.lora.up_a, e), to.rows.narrow(0, begin, count),
                 {.adds = true});
      }
    });
  }

 private:
  /// From an expert's d_out by rows [count, D] to the gradient of its first product [count, U].
  at::Tensor down_backward(int64_t e, int64_t begin, const Factor& d_rows, const BackwardInput& in,
                           Gradients& to) const {
    const int64_t count = d_rows.size(0);
    const at::Tensor weight = in.weight.narrow(0, begin, count).unsqueeze(1);
    const at::Tensor raised = in.raised.narrow(0, begin, count);
    const at::Tensor d_inner = multiplied(d_rows, in_out(weights_.down, e).transpose(-2, -1));
    const bool has_lora = weights_.lora.is_there();
    if (to.weight.defined() || to.experts.down.defined() || has_lora) {
      at::Tensor plain = inner(raised, options_);
      if (has_lora) down_gradients(e, plain * weight, d_rows, d_inner, to);
      if (to.weight.defined()) {
        at::Tensor d_weight = (d_inner * plain).sum(1);
        if (weights_.down_bias.defined() && e != kAllExperts) {
          d_weight.add_(at::mv(d_rows.tensor(), weights_.down_bias.select(0, e)));
        } else if (weights_.down_bias.defined()) {
          d_weight.add_((d_rows.tensor() * bias_of(weights_.down_bias, e)).sum(1));
        }
        if (e == kAllExperts) d_weight.masked_fill_(rows_.expert.eq(rows_.num_experts()), 0.0);
        to.weight.narrow(0, begin, count).copy_(d_weight);
      }
      if (to.experts.down.defined()) {
        weight_gradient(e, plain.mul_(weight), d_rows, to.experts.down);
      }
    }
    if (to.experts.down_bias.defined()) {
      bias_gradient(e, d_rows.tensor() * weight, to.experts.down_bias);
    }
    return inner_backward(d_inner.mul_(weight), raised, options_);
  }

  /// What is an expert's, of a tensor of all.
  static at::Tensor of(const at::Tensor& all, int64_t e) {
    return e == kAllExperts ? all : all.select(0, e);
  }

  /// An expert's bias, or that of each row's expert.
  at::Tensor bias_of(const at::Tensor& bias, int64_t e) const {
    if (e != kAllExperts) return bias.select(0, e);
    return bias.index_select(0, rows_.expert.clamp(std::nullopt, rows_.num_experts() - 1));
  }

  void bias_gradient(int64_t e, const at::Tensor& d_rows, at::Tensor& to) const {
    if (e != kAllExperts) {
      to.select(0, e).copy_(d_rows.sum(0));
      return;
    }
    const at::Tensor sums =
        at::zeros({rows_.num_experts() + 1, d_rows.size(1)}, d_rows.options().dtype(at::kFloat));
    sums.index_add_(0, rows_.expert, d_rows.to(at::kFloat));
    to = sums.narrow(0, 0, rows_.num_experts()).to(d_rows.scalar_type());
  }

  /// Each expert's rows times its matrix of [E, in, out]. What has no expert is not set.
  at::Tensor grouped(const Factor& rows, const at::Tensor& matrices) const {
    return at::_grouped_mm(rows.tensor().contiguous(), matrices, rows_.ends);
  }

  /// out = alpha rows matrix (+ out), of one expert's [in, out] or of all, [E, in, out].
  void multiply(const Factor& rows, const at::Tensor& matrix, const at::Tensor& out,
                const ProductOptions& options = {}) const {
    if (matrix.dim() == 2) return product_into(rows, matrix, out, options);
    const at::Tensor result = grouped(rows, matrix);
    if (options.adds) {
      out.add_(result, options.alpha);
    } else {
      out.copy_(options.alpha == 1 ? result : result * options.alpha);
    }
  }
  at::Tensor multiplied(const Factor& rows, const at::Tensor& matrix) const {
    return matrix.dim() == 2 ? product(rows, matrix) : grouped(rows, matrix);
  }

  /// to = alpha left^T right over an expert's rows, or over each expert's.
  void multiply_rows(int64_t e, const Factor& left, const Factor& right, at::Tensor& to,
                     double alpha = 1) const {
    if (e != kAllExperts) return product_into(left.t(), right, to.select(0, e), {.alpha = alpha});
    to = at::_grouped_mm(left.tensor().contiguous().t(), right.tensor().contiguous(), rows_.ends);
    if (alpha != 1) to.mul_(alpha);
  }

  /// The gradient of an expert's matrix, of the rows that went in and what came back.
  void weight_gradient(int64_t e, const Factor& input, const Factor& d_output,
                       at::Tensor& to) const {
    if (options_.is_transposed) {
      multiply_rows(e, input, d_output, to);
    } else {
      multiply_rows(e, d_output, input, to);
    }
  }

  /// Adds to `out` what an expert's adapter makes of the input of one of its products.
  void add_update(const Factor& input, const at::Tensor& a, const at::Tensor& b, int64_t e,
                  const at::Tensor& out) const {
    if (!a.defined()) return;
    multiply(multiplied(input, of(a, e).transpose(-2, -1)), of(b, e).transpose(-2, -1), out,
             {.adds = true, .alpha = weights_.lora.scale});
  }

  /// The gradients of one adapter's factors; returns that of input A^T [count, r].
  at::Tensor factor_gradients(int64_t e, const Factor& input, const Factor& d_output,
                              const at::Tensor& a, const at::Tensor& b, at::Tensor& to_a,
                              at::Tensor& to_b) const {
    const at::Tensor small = multiplied(input, of(a, e).transpose(-2, -1));
    const at::Tensor d_small = at::empty_like(small);
    multiply(d_output, of(b, e), d_small, {.alpha = weights_.lora.scale});
    multiply_rows(e, d_output, small, to_b, weights_.lora.scale);
    multiply_rows(e, d_small, input, to_a);
    return d_small;
  }

  at::Tensor up_gradients(int64_t e, const Factor& rows, const at::Tensor& d_raised,
                          Gradients& to) const {
    return factor_gradients(e, rows, d_raised, weights_.lora.up_a, weights_.lora.up_b,
                            to.experts.lora.up_a, to.experts.lora.up_b);
  }

  /// Adds the adapter's part to the gradient of the second product's input.
  void down_gradients(int64_t e, const at::Tensor& weighted, const Factor& d_rows,
                      const at::Tensor& d_inner, Gradients& to) const {
    const at::Tensor d_small =
        factor_gradients(e, weighted, d_rows, weights_.lora.down_a, weights_.lora.down_b,
                         to.experts.lora.down_a, to.experts.lora.down_b);
    multiply(d_small, of(weights_.lora.down_a, e), d_inner, {.adds = true});
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
      return raised.narrow(1, first_column, in_out.size(-1));
    }
  };
  /// One, or the gate's and up's.
  std::vector<Matrix> first_matrices(int64_t e) const {
    std::vector<Matrix> matrices;
    if (weights_.gate.defined()) matrices.push_back({in_out(weights_.gate, e)});
    matrices.push_back({in_out(weights_.up, e), first_up_column()});
    return matrices;
  }

  /// An expert's matrix as [in, out], or all as [E, in, out].
  at::Tensor in_out(const at::Tensor& weight, int64_t e) const {
    return options_.is_transposed ? of(weight, e) : of(weight, e).transpose(-2, -1);
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
    const ExpertLora lora{or_none(up_a), or_none(up_b), or_none(down_a), or_none(down_b), scale};
    const ExpertWeights experts{up,   or_none(up_bias), down, or_none(down_bias),
                                lora, or_none(gate)};
    const ExpertRows rows = has_grouped_products(x, experts)
                                ? sort_on_device(expert_ids, up.size(0))
                                : sort_by_expert(expert_ids, up.size(0));
    const ExpertProducts products(experts, *options, rows);
    const auto [raised, out] = products.forward(x, row_weights(weights, rows, x.scalar_type()));
    context->save_for_backward({input_to_save(*context, x), weights, up, or_none(up_bias), down,
                                or_none(down_bias), raised, rows.token, rows.choice, rows.row,
                                lora.up_a, lora.up_b, lora.down_a, lora.down_b, experts.gate,
                                rows.ends, rows.expert});
    context->saved_data["begins"] = rows.begins;
    context->saved_data["scale"] = scale;
    save_options(context, *options);
    return sum_choices(out, rows);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor x = saved_input(*context, saved[0]);
    const at::Tensor& weights = saved[1];
    const ExpertLora lora{saved[10], saved[11], saved[12], saved[13],
                          context->saved_data["scale"].toDouble()};
    const ExpertWeights experts{saved[2], saved[3], saved[4], saved[5], lora, saved[14]};
    const ExpertRows rows{saved[7],  saved[8],
                          saved[9],  context->saved_data["begins"].toIntVector(),
                          saved[15], saved[16]};
    const ExpertOptions options = saved_options(context);
    const at::Tensor weight = row_weights(weights, rows, x.scalar_type());
    const auto wanted = [&](size_t input, const at::Tensor& like) {
      const bool is_wanted = like.defined() && context->needs_input_grad(input);
      return is_wanted ? gradient_of(like, rows) : at::Tensor();
    };
    ExpertProducts::Gradients to{
        context->needs_input_grad(0) ? room_for_rows(rows, x) : at::Tensor(),
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

  static at::Tensor room_for_rows(const ExpertRows& rows, const at::Tensor& x) {
    return at::empty({rows.is_on_device() ? 0 : rows.num_rows(), x.size(1)}, x.options());
  }

  /// Room for the gradient of [E, …], zero for the experts that have no rows.
  static at::Tensor gradient_of(const at::Tensor& weight, const ExpertRows& rows) {
    if (rows.is_on_device()) return at::empty({0}, weight.options());
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
