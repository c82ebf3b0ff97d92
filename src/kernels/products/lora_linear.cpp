#include "kernels/products/lora_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/error.h"
#include "kernels/base/fused.h"
#include "kernels/base/result_keeper.h"
#include "kernels/device/device_kernels.h"
#include "kernels/products/kept_input.h"
#include "kernels/products/linear.h"
#include "kernels/products/product.h"

namespace automodel::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// What a node keeps beside its tensors.
struct LoraPlace : torch::CustomClassHolder {
  std::vector<OutputRange> ranges;
  double scale = 1;
};

/// Calls `body(range, its columns of h, its rows of b)` for every adapter.
template <typename Body>
void for_each_adapter(const LoraPlace& place, int64_t rank, const Body& body) {
  int64_t row = 0;
  for (size_t p = 0; p < place.ranges.size(); ++p) {
    const OutputRange& range = place.ranges[p];
    body(range, static_cast<int64_t>(p) * rank, row);
    row += range.count;
  }
}

/// out = scale h factors, [rows, n] = [rows, r] [r, n], on a device, whose own products of so low a
/// rank are slow.
void low_rank_into(const at::Tensor& h, const at::Tensor& factors, const at::Tensor& out,
                   double scale) {
  const auto* const kernels = device::kernels_for({h, factors, out});
  const bool is_done = kernels != nullptr && h.stride(1) == 1 && out.stride(1) == 1 &&
                       by_storage(h, [&](auto storage) {
                         using T = decltype(storage);
                         return kernels->of<T>().low_rank({.h = numbers_of<T>(h),
                                                           .factors = numbers_of<T>(factors),
                                                           .out = numbers_of<T>(out),
                                                           .rows = out.size(0),
                                                           .width = out.size(1),
                                                           .rank = h.size(1),
                                                           .h_stride = h.stride(0),
                                                           .out_stride = out.stride(0),
                                                           .rank_stride = factors.stride(0),
                                                           .column_stride = factors.stride(1),
                                                           .factor = static_cast<float>(scale)});
                       });
  if (!is_done) product_into(h, factors, out, {.alpha = scale});
}

/// Whether the adapters' outputs are all of a layer's, each once.
bool covers(const LoraPlace& place, int64_t num_outputs) {
  int64_t end = 0;
  for (const OutputRange& range : place.ranges) {
    if (range.first != end) return false;
    end += range.count;
  }
  return end == num_outputs;
}

/// Operands of one dtype, as is_fusable_product() says. `kept` is the base layer's product with its
/// adapters when it is there already, else null.
struct LoraLinear : torch::autograd::Function<LoraLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const at::Tensor& a,
                            const at::Tensor& b, const c10::intrusive_ptr<LoraPlace>& place,
                            const at::Tensor* kept) {
    const int64_t rank = b.size(1);
    const at::Tensor rows = x.reshape({-1, x.size(-1)});
    const at::Tensor h = product(rows, Factor(a).t());
    context->saved_data["has_bias"] = bias.has_value();
    context->saved_data["place"] = c10::IValue::make_capsule(place);
    context->save_for_backward({input_to_save(*context, x), weight, a, b, h});
    if (kept != nullptr) return kept->detach();
    // A device's large product adds to what is there for nothing, a small one for the time of
    // reading it.
    const bool is_last = device::kernels_for({x, weight, b}) != nullptr && !bias.has_value() &&
                         covers(*place, weight.size(0));
    const at::Tensor out =
        is_last ? at::empty({rows.size(0), weight.size(0)}, rows.options())
                : product(rows, Factor(weight).t(), {.bias = bias.value_or(at::Tensor())});
    for_each_adapter(*place, rank, [&](const OutputRange& range, int64_t column, int64_t row) {
      const at::Tensor of_input = h.narrow(1, column, rank);
      const at::Tensor factors = b.narrow(0, row, range.count);
      const at::Tensor own = out.narrow(1, range.first, range.count);
      if (is_last) return low_rank_into(of_input, factors.t(), own, place->scale);
      product_into(of_input, Factor(factors).t(), own, {.adds = true, .alpha = place->scale});
    });
    if (is_last) product_into(rows, Factor(weight).t(), out, {.adds = true});
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = weight.size(0);
    return out.view(sizes);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& weight = saved[1];
    const at::Tensor& a = saved[2];
    const at::Tensor& b = saved[3];
    const at::Tensor& h = saved[4];
    const auto holder = context->saved_data["place"].toCapsule();
    const auto& place = static_cast<const LoraPlace&>(*holder);
    const int64_t rank = b.size(1);
    const at::Tensor gradient = gradients[0].reshape({-1, gradients[0].size(-1)});
    const at::Tensor d_h = at::empty_like(h);
    at::Tensor d_b = at::empty_like(b);
    for_each_adapter(place, rank, [&](const OutputRange& range, int64_t column, int64_t row) {
      const at::Tensor own = gradient.narrow(1, range.first, range.count);
      product_into(own, b.narrow(0, row, range.count), d_h.narrow(1, column, rank),
                   {.alpha = place.scale});
      product_into(Factor(own).t(), h.narrow(1, column, rank), d_b.narrow(0, row, range.count),
                   {.alpha = place.scale});
    });
    at::Tensor d_a, d_x;
    // Inputs that are there are counted: x, weight, bias, a, b.
    if (context->needs_input_grad(context->saved_data["has_bias"].toBool() ? 3 : 2)) {
      const at::Tensor x = saved_input(*context, saved[0]);
      d_a = product(Factor(d_h).t(), x.reshape({-1, x.size(-1)}));
    }
    if (context->needs_input_grad(0)) {
      if (device::kernels_for({gradient, weight}) == nullptr) {
        d_x = product(gradient, weight);
        product_into(d_h, a, d_x, {.adds = true});
      } else {  // as in forward
        d_x = at::empty({gradient.size(0), weight.size(1)}, gradient.options());
        low_rank_into(d_h, a, d_x, 1);
        product_into(gradient, weight, d_x, {.adds = true});
      }
      std::vector<int64_t> sizes = gradients[0].sizes().vec();
      sizes.back() = weight.size(1);
      d_x = d_x.view(sizes);
    }
    return {d_x, at::Tensor(), at::Tensor(), d_a, d_b, at::Tensor(), at::Tensor()};
  }
};

/// lora_linear() from plain products.
at::Tensor plain_lora_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             const LoraFactors& lora) {
  const int64_t rank = lora.rank();
  const at::Tensor base = linear(x, weight, bias);
  const at::Tensor h = at::linear(x, lora.a);
  std::vector<at::Tensor> columns;
  int64_t end = 0;
  int64_t row = 0;
  for (size_t p = 0; p < lora.ranges.size(); ++p) {
    const OutputRange& range = lora.ranges[p];
    if (range.first > end) columns.push_back(base.narrow(-1, end, range.first - end));
    const at::Tensor update = at::linear(h.narrow(-1, static_cast<int64_t>(p) * rank, rank),
                                         lora.b.narrow(0, row, range.count));
    columns.push_back(base.narrow(-1, range.first, range.count) + update * lora.scale);
    end = range.first + range.count;
    row += range.count;
  }
  if (end < base.size(-1)) columns.push_back(base.narrow(-1, end, base.size(-1) - end));
  return columns.size() == 1 ? columns[0] : at::cat(columns, -1);
}

}  // namespace

at::Tensor lora_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                       const LoraFactors& lora) {
  AM_CHECK(!weight.requires_grad() && !(bias.defined() && bias.requires_grad()),
           "the layer under adapters is frozen");
  if (!is_fusable_product({x, weight, bias, lora.a, lora.b})) {
    return plain_lora_linear(x, weight, bias, lora);
  }
  auto place = c10::make_intrusive<LoraPlace>();
  place->ranges = lora.ranges;
  place->scale = lora.scale;
  const std::optional<at::Tensor> offset = bias.defined() ? std::optional(bias) : std::nullopt;
  const auto kept = take_result(ResultKind::kMatrixProduct);
  const at::Tensor* there = kept ? kept->data() : nullptr;
  at::Tensor out = LoraLinear::apply(x, weight, offset, lora.a, lora.b, place, there);
  if (!kept) offer_result(ResultKind::kMatrixProduct, {out});
  return out;
}

}  // namespace automodel::kernels
