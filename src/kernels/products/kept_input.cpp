#include "kernels/products/kept_input.h"

#include <memory>

#include "kernels/base/fused.h"
#include "kernels/base/made_again.h"
#include "kernels/device/device_kernels.h"
#include "kernels/layers/activation.h"
#include "kernels/layers/norm.h"

namespace automodel::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Node;

constexpr const char* kSizes = "sizes_of_input";

/// The tensor that x is all of, in other sizes, and gives its gradient to; else x.
at::Tensor unshaped(const at::Tensor& x) {
  if (!x.is_view() || x.grad_fn() == nullptr) return x;
  const at::Tensor base(x._base());
  const bool is_whole = base.numel() == x.numel() && base.is_contiguous() && x.is_contiguous() &&
                        base.scalar_type() == x.scalar_type();
  return is_whole ? base : x;
}

}  // namespace

bool is_made_again(const at::Tensor& x) {
  const bool has_loops = is_fusable({x}) && device::kernels_for({x}) == nullptr;
  if (!has_loops) return false;
  const at::Tensor made = unshaped(x);
  const std::shared_ptr<Node>& node = made.grad_fn();
  const uint32_t output = made.output_nr();
  return node != nullptr && (has_normed(*node, output) || has_activated(*node, output));
}

at::Tensor input_to_save(AutogradContext& context, const at::Tensor& x) {
  if (!is_made_again(x)) return x;
  note_maker(context, unshaped(x).grad_fn());
  context.saved_data[kSizes] = x.sizes();
  return {};
}

at::Tensor saved_input(AutogradContext& context, const at::Tensor& saved) {
  Node* const maker = noted_maker(context);
  if (maker == nullptr) return saved;
  const at::Tensor again =
      has_activated(*maker, 0) ? activated_again(*maker) : normed_again(*maker);
  return again.view(context.saved_data[kSizes].toIntVector());
}

}  // namespace automodel::kernels
