#include "kernels/products/kept_input.h"

#include <memory>
#include <string>
#include <utility>

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

/// A node and the number of one of its outputs.
struct Output {
  std::shared_ptr<Node> node;
  uint32_t number = 0;
};

/// What x is the output of, seen through a reshape. A view of the same sizes is not seen through:
/// units of sharded parameters end with one, and those of a maker behind it may be gone by then.
Output origin_of(const at::Tensor& x) {
  const std::shared_ptr<Node>& node = x.grad_fn();
  const Output own{node, static_cast<uint32_t>(x.output_nr())};
  if (node == nullptr || !x.is_view()) return own;
  const at::Tensor base(x._base());
  const std::string name = node->name();
  const bool is_reshape = (name == "ViewBackward0" || name == "ReshapeAliasBackward0") &&
                          base.is_contiguous() && x.is_contiguous() && base.numel() == x.numel() &&
                          base.sizes() != x.sizes();
  if (!is_reshape) return own;
  const torch::autograd::Edge& edge = node->next_edge(0);
  return {edge.function, edge.input_nr};
}

/// The node that makes x again; null: none.
std::shared_ptr<Node> maker_of(const at::Tensor& x) {
  const bool has_loops = is_fusable({x}) && device::kernels_for({x}) == nullptr;
  if (!has_loops) return nullptr;
  Output origin = origin_of(x);
  const bool can_make = origin.node != nullptr && (has_normed(*origin.node, origin.number) ||
                                                   has_activated(*origin.node, origin.number));
  return can_make ? std::move(origin.node) : nullptr;
}

}  // namespace

bool is_made_again(const at::Tensor& x) {
  return maker_of(x) != nullptr;
}

at::Tensor input_to_save(AutogradContext& context, const at::Tensor& x) {
  std::shared_ptr<Node> maker = maker_of(x);
  if (maker == nullptr) return x;
  note_maker(context, std::move(maker));
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
