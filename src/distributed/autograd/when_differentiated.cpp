#include "distributed/autograd/when_differentiated.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/products/kept_input.h"

namespace automodel::distributed {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// Calls an action after the last of several reports.
struct Countdown : torch::CustomClassHolder {
  int64_t left = 0;
  const std::function<void()>* action = nullptr;
};

/// Identity; its backward, which runs after everything computed from the tensor was differentiated,
/// reports to the countdown.
struct WhenDifferentiated : torch::autograd::Function<WhenDifferentiated> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor,
                            const c10::intrusive_ptr<Countdown>& countdown) {
    context->saved_data["countdown"] = c10::IValue::make_capsule(countdown);
    return tensor.view_as(tensor);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto holder = context->saved_data["countdown"].toCapsule();
    auto& countdown = static_cast<Countdown&>(*holder);
    if (--countdown.left == 0) (*countdown.action)();
    return {gradients[0], at::Tensor()};
  }
};

}  // namespace

nn::TensorList when_differentiated(const nn::TensorList& tensors,
                                   const std::function<void()>& action) {
  auto countdown = c10::make_intrusive<Countdown>();
  countdown->action = &action;
  nn::TensorList out;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.requires_grad()) {
      out.push_back(tensor);
      continue;
    }
    countdown->left += 1;
    out.push_back(WhenDifferentiated::apply(tensor, countdown));
  }
  return out;
}

nn::TensorList before_differentiated(nn::TensorList tensors, const std::function<void()>& action) {
  for (at::Tensor& tensor : tensors) {
    if (!tensor.requires_grad()) continue;
    // Whoever makes a norm's result again reads the norm's weight, before the hook on that result
    // has run. Of a view in the same sizes nothing is made again.
    if (kernels::is_made_again(tensor)) tensor = tensor.view_as(tensor);
    tensor.register_hook([action](const at::Tensor&) { action(); });
  }
  return tensors;
}

}  // namespace automodel::distributed
