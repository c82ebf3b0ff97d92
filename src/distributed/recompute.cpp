#include "distributed/recompute.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "core/error.h"
#include "distributed/flat_units.h"
#include "nn/unit_hook.h"

namespace automodel::distributed {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// The body of a block's forward, kept until its backward.
struct KeptBody : torch::CustomClassHolder {
  nn::UnitBody body;
};

/// Of blocks with one input and one output, which decoder layers are.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const c10::intrusive_ptr<KeptBody>& kept) {
    context->save_for_backward({input});
    context->saved_data["body"] = c10::IValue::make_capsule(kept);
    return kept->body({input})[0];  // the grad mode is off in here: nothing else is saved
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto holder = context->saved_data["body"].toCapsule();
    const auto& kept = static_cast<const KeptBody&>(*holder);
    at::Tensor input = context->get_saved_variables()[0].detach().requires_grad_();
    at::Tensor output;
    {
      at::AutoGradMode with_gradients(true);
      output = kept.body({input})[0];
    }
    torch::autograd::backward({output}, {gradients[0]});
    return {input.grad(), at::Tensor()};
  }
};

class RecomputeBehavior final : public nn::UnitBehavior {
 public:
  nn::TensorList run(const nn::TensorList& inputs, const nn::UnitBody& body) override {
    AM_CHECK(inputs.size() == 1, "recomputed blocks have one input, this one has ", inputs.size());
    if (!at::GradMode::is_enabled() || !inputs[0].requires_grad()) return body(inputs);
    auto kept = c10::make_intrusive<KeptBody>();
    kept->body = body;
    return {Recomputed::apply(inputs[0], kept)};
  }
};

}  // namespace

void recompute_blocks(torch::nn::Module& module, const nn::ParallelPlan& plan) {
  for (const std::string& block : plan.blocks) {
    auto* hooked = dynamic_cast<nn::HookedModule*>(&module_at(module, block));
    AM_CHECK(hooked != nullptr, block, " is a block but its forward goes through no UnitHook");
    hooked->unit_hook().install(std::make_unique<RecomputeBehavior>());
  }
}

}  // namespace automodel::distributed
