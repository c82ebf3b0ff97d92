#include "kernels/products/fake_quantize.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "core/error.h"
#include "kernels/base/fused.h"
#include "kernels/products/kept_input.h"
#include "kernels/products/linear.h"
#include "kernels/products/product.h"

namespace automodel::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// A tensor after rounding, and what its gradient is made of.
struct Rounded {
  at::Tensor values;
  at::Tensor is_inside;  ///< bool: where elements were inside the range
  at::Tensor slope;  ///< float32 [..., 1] of blocks: of the values where they were; undefined: 1
};

/// Whole numbers after clamping, and where they were inside the range.
struct Levels {
  Levels(const at::Tensor& found, double least, double greatest)
      : clamped(found.clamp(least, greatest)),
        is_inside(found.ge(least).logical_and(found.le(greatest))) {}

  at::Tensor clamped;
  at::Tensor is_inside;
};

double smallest_normal(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return 6.103515625e-05;
    case at::kDouble:
      return std::numeric_limits<double>::min();
    default:  // bfloat16 has float32's exponents
      return std::numeric_limits<float>::min();
  }
}

/// Blocks [..., size] to -8 to 7 times a scale.
Rounded round_symmetric(const at::Tensor& blocks, at::ScalarType scale_dtype) {
  const at::Tensor largest = blocks.abs().amax(-1, /*keepdim=*/true);
  const at::Tensor scale =
      (largest / 7.5).clamp_min(smallest_normal(blocks.scalar_type())).to(scale_dtype);
  const at::Tensor inverse = scale.reciprocal();
  const Levels levels((blocks * inverse).round(), -8, 7);
  // A narrow scale and its reciprocal do not cancel each other.
  return {(levels.clamped * scale).to(blocks.scalar_type()), levels.is_inside,
          scale.to(at::kFloat) * inverse.to(at::kFloat)};
}

/// Blocks [..., size] to sixteen steps from their least to their greatest value.
Rounded round_between(const at::Tensor& blocks, at::ScalarType scale_dtype) {
  const auto [least, greatest] = at::aminmax(blocks, -1, /*keepdim=*/true);
  const at::Tensor wide_scale = ((greatest - least) / 15.0).clamp_min(1e-6);
  const at::Tensor middle = (least + wide_scale * 8.0).to(scale_dtype);
  const at::Tensor scale = wide_scale.to(scale_dtype);
  const Levels levels(((blocks - (middle - scale * 8.0)) / scale).round(), 0, 15);
  at::Tensor values = (levels.clamped - 8.0).to(blocks.scalar_type());
  values.mul_(scale).add_(middle);
  return {values, levels.is_inside, {}};
}

/// Tokens to 256 levels between the least and the greatest of their values and 0. Scales and zero
/// points are float32.
Rounded round_between_tokens(const at::Tensor& x) {
  const auto [least, greatest] = at::aminmax(x, -1, /*keepdim=*/true);
  const at::Tensor low = least.clamp_max(0);
  const at::Tensor wide_scale =
      ((greatest.clamp_min(0) - low) / 255.0).clamp_min(std::numeric_limits<float>::epsilon());
  const at::Tensor zero = ((low / wide_scale).round().neg() - 128.0).clamp(-128, 127);
  const at::Tensor scale = wide_scale.to(at::kFloat);
  const Levels levels((x * scale.reciprocal()).round() + zero.to(at::kFloat), -128, 127);
  const at::Tensor values = (levels.clamped.to(x.scalar_type()) - zero) * scale;
  return {values.to(x.scalar_type()), levels.is_inside, {}};
}

/// How rows are rounded: as a weight's, in groups, or as tokens.
struct RowFormat {
  std::optional<FourBitGroups> groups;

  bool has_loops() const { return !groups || groups->is_symmetric; }

  /// By ATen's operations.
  Rounded round(const at::Tensor& rows) const {
    if (!groups) return round_between_tokens(rows);
    const at::Tensor blocks = rows.view({rows.size(0), -1, groups->size});
    const Rounded rounded = groups->is_symmetric ? round_symmetric(blocks, groups->scale_dtype)
                                                 : round_between(blocks, groups->scale_dtype);
    return {rounded.values.view_as(rows), rounded.is_inside.view_as(rows), rounded.slope};
  }

  /// By the CPU's loops.
  template <typename T>
  void round(const T* rows, T* values, T* gradient, int64_t count, int64_t width) const {
    const auto& loops = cpu::loops().of<T>();
    if (!groups) return loops.round_tokens(rows, values, gradient, count, width);
    loops.round_groups(rows, values, gradient, count * (width / groups->size), groups->size,
                       groups->scale_dtype == at::kBFloat16);
  }
};

/// The gradient of rounded rows becomes that of the rows.
void pass_through(const Rounded& rounded, const at::Tensor& gradient) {
  gradient.mul_(rounded.is_inside);
  if (!rounded.slope.defined()) return;
  gradient.view({rounded.slope.size(0), rounded.slope.size(1), -1}).mul_(rounded.slope);
}

/// Rounds rows [n, width] into `values`, and makes `gradient`, of the rounded rows, that of the
/// rows in place; either may be undefined. Operations on a CPU take few rows at a time, so that
/// what they make on the way is small.
void round_rows(const at::Tensor& rows, const RowFormat& format, const at::Tensor& values,
                const at::Tensor& gradient) {
  const int64_t num_rows = rows.size(0);
  const int64_t width = rows.size(1);
  const auto by_operations = [&](int64_t first, int64_t count) {
    const Rounded rounded = format.round(rows.narrow(0, first, count));
    if (values.defined()) values.narrow(0, first, count).copy_(rounded.values);
    if (gradient.defined()) pass_through(rounded, gradient.narrow(0, first, count));
  };
  if (!rows.is_cpu()) return by_operations(0, num_rows);
  const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 14) / std::max<int64_t>(1, width));
  if (format.has_loops() && is_fusable({rows})) {
    by_storage(rows, [&](auto storage) {
      using T = decltype(storage);
      T* const out = numbers_of<T>(values);
      T* const grad = numbers_of<T>(gradient);
      at::parallel_for(0, num_rows, grain, [&](int64_t begin, int64_t end) {
        const int64_t at = begin * width;
        format.round(numbers_of<T>(rows) + at, out == nullptr ? out : out + at,
                     grad == nullptr ? grad : grad + at, end - begin, width);
      });
    });
    return;
  }
  for (int64_t row = 0; row < num_rows; row += 64 * grain) {
    by_operations(row, std::min(64 * grain, num_rows - row));
  }
}

at::Tensor flat_rows(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

/// x [..., width] after rounding.
at::Tensor round_values(const at::Tensor& x, const RowFormat& format) {
  if (format.groups) {
    const at::ScalarType scales = format.groups->scale_dtype;
    AM_CHECK(scales == at::kFloat || scales == at::kBFloat16);
    AM_CHECK(x.size(-1) % format.groups->size == 0);
  }
  const at::Tensor rows = flat_rows(x.detach()).contiguous();
  at::Tensor values = at::empty_like(rows);
  round_rows(rows, format, values, {});
  return values.view(x.sizes());
}

/// Makes the gradient [..., width] of round_values(x) that of x, in place; returns it.
at::Tensor round_gradient(const at::Tensor& gradient, const at::Tensor& x,
                          const RowFormat& format) {
  at::Tensor own = gradient.contiguous();
  round_rows(flat_rows(x.detach()).contiguous(), format, {}, own.view({-1, own.size(-1)}));
  return own;
}

/// A format between a forward and its backward pass.
template <typename T>
struct KeptFormat final : torch::CustomClassHolder {
  explicit KeptFormat(const T& value) : format(value) {}
  T format;
};

template <typename T>
c10::IValue keep_format(const T& format) {
  return c10::IValue::make_capsule(c10::make_intrusive<KeptFormat<T>>(format));
}

template <typename T>
T kept_format(const c10::IValue& value) {
  return c10::static_intrusive_pointer_cast<KeptFormat<T>>(value.toCapsule())->format;
}

/// Rounds again in backward, so that no more than x is saved.
struct RoundedRows : torch::autograd::Function<RoundedRows> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const RowFormat& format) {
    context->save_for_backward({x});
    context->saved_data["format"] = keep_format(format);
    return round_values(x, format);
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto format = kept_format<RowFormat>(context->saved_data["format"]);
    const at::Tensor own = gradients[0].clone(at::MemoryFormat::Contiguous);
    return {round_gradient(own, context->get_saved_variables()[0], format), at::Tensor()};
  }
};

struct QuantizedLinear : torch::autograd::Function<QuantizedLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const FakeQuantization& format) {
    context->save_for_backward({input_to_save(*context, x), weight});
    context->saved_data["format"] = keep_format(format);
    context->saved_data["has_bias"] = bias.has_value();
    return linear(format.rounds_inputs ? round_values(x, {}) : x,
                  round_values(weight, {format.weights}), bias.value_or(at::Tensor()));
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor x = saved_input(*context, saved[0]);
    const auto format = kept_format<FakeQuantization>(context->saved_data["format"]);
    const at::Tensor gradient = flat_rows(gradients[0]);
    at::Tensor d_x, d_weight, d_bias;
    if (context->needs_input_grad(0)) {
      d_x = product(gradient, round_values(saved[1], {format.weights})).view(x.sizes());
      if (format.rounds_inputs) d_x = round_gradient(d_x, x, {});
    }
    if (context->needs_input_grad(1)) {
      const at::Tensor in = flat_rows(format.rounds_inputs ? round_values(x, {}) : x);
      d_weight = round_gradient(product(gradient.t(), in), saved[1], {format.weights});
    }
    if (context->saved_data["has_bias"].toBool() && context->needs_input_grad(2)) {
      d_bias = gradient.sum(0);
    }
    return {d_x, d_weight, d_bias, at::Tensor()};
  }
};

}  // namespace

at::Tensor rounded_weight(const at::Tensor& weight, const FourBitGroups& groups) {
  return RoundedRows::apply(weight, RowFormat{groups});
}

at::Tensor rounded_tokens(const at::Tensor& x) {
  return RoundedRows::apply(x, RowFormat{});
}

at::Tensor fake_quantized_linear(const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& bias, const FakeQuantization& format) {
  if (is_slow_to_multiply(x)) {
    return linear(format.rounds_inputs ? rounded_tokens(x) : x,
                  rounded_weight(weight, format.weights), bias);
  }
  return QuantizedLinear::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt,
                                format);
}

}  // namespace automodel::kernels
