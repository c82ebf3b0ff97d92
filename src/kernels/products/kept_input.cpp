#include "kernels/products/kept_input.h"

#include <memory>
#include <utility>

#include "kernels/base/fused.h"
#include "kernels/device/device_kernels.h"
#include "kernels/layers/activation.h"
#include "kernels/layers/norm.h"

namespace automodel::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Node;

constexpr const char* kMaker = "maker_of_input";

/// The node that has made an input. The product's node leads to it anyway, by the gradient that it
/// gives it, so this keeps nothing alive.
struct Maker : torch::CustomClassHolder {
  explicit Maker(std::shared_ptr<Node> node) : node(std::move(node)) {}
  std::shared_ptr<Node> node;
};

}  // namespace

bool is_made_again(const at::Tensor& x) {
  const bool has_loops = is_fusable({x}) && device::kernels_for({x}) == nullptr;
  if (!has_loops) return false;
  const std::shared_ptr<Node>& node = x.grad_fn();
  const uint32_t output = x.output_nr();
  return node != nullptr && (has_normed(*node, output) || has_activated(*node, output));
}

at::Tensor input_to_save(AutogradContext& context, const at::Tensor& x) {
  if (!is_made_again(x)) return x;
  context.saved_data[kMaker] = c10::IValue::make_capsule(c10::make_intrusive<Maker>(x.grad_fn()));
  return {};
}

at::Tensor saved_input(AutogradContext& context, const at::Tensor& saved) {
  const auto maker = context.saved_data.find(kMaker);
  if (maker == context.saved_data.end()) return saved;
  const auto holder = maker->second.toCapsule();
  Node& node = *static_cast<const Maker&>(*holder).node;
  return has_activated(node, 0) ? activated_again(node) : normed_again(node);
}

}  // namespace automodel::kernels
