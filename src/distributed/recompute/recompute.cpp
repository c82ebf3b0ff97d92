#include "distributed/recompute/recompute.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.h"
#include "distributed/fsdp/flat_units.h"
#include "kernels/base/result_keeper.h"
#include "nn/repeated_block.h"
#include "nn/unit_hook.h"

namespace automodel::distributed {

namespace {

using kernels::ResultKeeperScope;
using kernels::ResultKind;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// Upstream's choice, called for every result in the order of computation. Forward and
/// recomputation use an object each, so that both count from the start.
class SelectivePolicy final {
 public:
  bool keeps(ResultKind kind) {
    switch (kind) {
      case ResultKind::kAttention:
        return true;
      case ResultKind::kMatrixProduct:
        num_products_ += 1;
        return num_products_ % 2 == 1;
    }
    AM_CHECK(false);
  }

  static size_t num_tensors(ResultKind kind) { return kind == ResultKind::kAttention ? 2 : 1; }

 private:
  int64_t num_products_ = 0;
};

/// Collects the results that a forward keeps.
class Keeping final : public kernels::ResultKeeper {
 public:
  std::optional<tensor_list> take(ResultKind) override { return std::nullopt; }

  void computed(ResultKind kind, const tensor_list& results) override {
    if (!policy_.keeps(kind)) return;
    for (const at::Tensor& result : results) {
      kept_.push_back(result);
      versions_.push_back(result._version());
    }
  }

  const tensor_list& kept() const {
    for (size_t i = 0; i < kept_.size(); ++i) {
      AM_CHECK(kept_[i]._version() == versions_[i], "a kept result was changed in place");
    }
    return kept_;
  }

 private:
  SelectivePolicy policy_;
  tensor_list kept_;
  std::vector<int64_t> versions_;
};

/// Returns the results that a forward kept to its recomputation.
class Taking final : public kernels::ResultKeeper {
 public:
  explicit Taking(tensor_list kept) : kept_(std::move(kept)) {}

  std::optional<tensor_list> take(ResultKind kind) override {
    if (!policy_.keeps(kind)) return std::nullopt;
    const size_t count = SelectivePolicy::num_tensors(kind);
    AM_CHECK(next_ + count <= kept_.size(), "a recomputation has more results than its forward");
    tensor_list results;
    for (; results.size() < count; ++next_) results.push_back(std::move(kept_[next_]));
    return results;
  }

  void computed(ResultKind, const tensor_list&) override {}

  bool is_used_up() const { return next_ == kept_.size(); }

 private:
  SelectivePolicy policy_;
  tensor_list kept_;
  size_t next_ = 0;
};

tensor_list detached(at::TensorList inputs) {
  tensor_list out;
  for (const at::Tensor& input : inputs) {
    out.push_back(input.detach().requires_grad_(input.requires_grad()));
  }
  return out;
}

/// Runs the backward of a separate graph and adds its parameters' gradients to them. Returns the
/// inputs' gradients, and an undefined one for the function's last argument.
tensor_list run_backward(const tensor_list& inputs, const tensor_list& outputs,
                         const tensor_list& gradients) {
  tensor_list reached, gradients_there;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!gradients[i].defined()) continue;
    reached.push_back(outputs[i]);
    gradients_there.push_back(gradients[i]);
  }
  torch::autograd::backward(reached, gradients_there);
  tensor_list found;
  for (const at::Tensor& input : inputs) found.push_back(input.grad());
  found.emplace_back();
  return found;
}

/// The body of a block's forward, kept until its backward.
struct KeptBody : torch::CustomClassHolder {
  nn::UnitBody body;
  bool is_selective = false;
};

/// Saves the inputs, followed by the results that the forward kept.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static tensor_list forward(AutogradContext* context, at::TensorList inputs,
                             const c10::intrusive_ptr<KeptBody>& kept) {
    context->saved_data["body"] = c10::IValue::make_capsule(kept);
    context->saved_data["inputs"] = static_cast<int64_t>(inputs.size());
    context->set_materialize_grads(false);
    // Grad mode is off here: only what this function saves is kept.
    tensor_list saved = inputs.vec();
    tensor_list outputs;
    if (kept->is_selective) {
      Keeping keeping;
      const ResultKeeperScope scope(keeping);
      outputs = kept->body(inputs.vec());
      saved.insert(saved.end(), keeping.kept().begin(), keeping.kept().end());
    } else {
      outputs = kept->body(inputs.vec());
    }
    context->save_for_backward(std::move(saved));
    return outputs;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto holder = context->saved_data["body"].toCapsule();
    const auto& kept = static_cast<const KeptBody&>(*holder);
    tensor_list saved = context->get_saved_variables();
    const auto num_inputs = static_cast<std::ptrdiff_t>(context->saved_data["inputs"].toInt());
    tensor_list inputs(saved.begin(), saved.begin() + num_inputs);
    saved.erase(saved.begin(), saved.begin() + num_inputs);
    inputs = detached(inputs);
    const tensor_list outputs =
        kept.is_selective ? recompute_selectively(kept, inputs, saved) : recompute(kept, inputs);
    return run_backward(inputs, outputs, gradients);
  }

  static tensor_list recompute(const KeptBody& kept, const tensor_list& inputs) {
    const at::AutoGradMode with_gradients(true);
    return kept.body(inputs);
  }

  static tensor_list recompute_selectively(const KeptBody& kept, const tensor_list& inputs,
                                           tensor_list& results) {
    Taking taking(std::move(results));
    tensor_list outputs;
    {
      const ResultKeeperScope scope(taking);
      outputs = recompute(kept, inputs);
    }
    AM_CHECK(taking.is_used_up(), "a recomputation has fewer results than its forward");
    return outputs;
  }
};

/// The graph of one run of a block, kept until its backward.
struct OwnGraph : torch::CustomClassHolder {
  tensor_list inputs, outputs;
};

/// Runs a block in a separate graph.
struct Separated : torch::autograd::Function<Separated> {
  static tensor_list forward(AutogradContext* context, at::TensorList inputs,
                             const nn::UnitBody* body) {
    auto graph = c10::make_intrusive<OwnGraph>();
    context->saved_data["graph"] = c10::IValue::make_capsule(graph);
    context->set_materialize_grads(false);
    graph->inputs = detached(inputs);
    const at::AutoGradMode with_gradients(true);
    graph->outputs = (*body)(graph->inputs);
    tensor_list out;
    for (const at::Tensor& output : graph->outputs) out.push_back(output.detach());
    return out;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto holder = context->saved_data["graph"].toCapsule();
    auto& graph = static_cast<OwnGraph&>(*holder);
    const tensor_list inputs = std::exchange(graph.inputs, {});
    const tensor_list outputs = std::exchange(graph.outputs, {});
    return run_backward(inputs, outputs, gradients);
  }
};

bool has_backward(const nn::TensorList& inputs) {
  return at::GradMode::is_enabled() && std::ranges::any_of(inputs, &at::Tensor::requires_grad);
}

class SeparateRuns final : public nn::UnitBehavior {
 public:
  nn::TensorList run(const nn::TensorList& inputs, const nn::UnitBody& body) override {
    if (!has_backward(inputs)) return body(inputs);
    return Separated::apply(at::TensorList(inputs), &body);
  }
};

class RecomputeBehavior final : public nn::UnitBehavior {
 public:
  explicit RecomputeBehavior(bool is_selective) : is_selective_(is_selective) {}

  nn::TensorList run(const nn::TensorList& inputs, const nn::UnitBody& body) override {
    if (!has_backward(inputs)) return body(inputs);
    auto kept = c10::make_intrusive<KeptBody>();
    kept->body = body;
    kept->is_selective = is_selective_;
    return Recomputed::apply(at::TensorList(inputs), kept);
  }

 private:
  bool is_selective_;
};

bool has_trained_parameters(const torch::nn::Module& module) {
  const std::vector<at::Tensor> parameters = module.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const at::Tensor& parameter) { return parameter.requires_grad(); });
}

}  // namespace

std::vector<torch::nn::Module*> get_lm_ac_layers(torch::nn::Module& model,
                                                 const nn::ParallelPlan& plan) {
  std::vector<torch::nn::Module*> layers;
  for (const std::string& block : plan.blocks) layers.push_back(&module_at(model, block));
  return layers;
}

int64_t recompute_blocks(torch::nn::Module& model, const nn::ParallelPlan& plan,
                         ActivationCheckpointingMode mode) {
  using Mode = ActivationCheckpointingMode;
  int64_t num_blocks = 0;
  for (torch::nn::Module* layer : get_lm_ac_layers(model, plan)) {
    if (!has_trained_parameters(*layer)) continue;
    auto* hooked = dynamic_cast<nn::HookedModule*>(layer);
    AM_CHECK(hooked != nullptr, "a ", layer->name(), " is a block without a UnitHook");
    if (mode == Mode::kOff && dynamic_cast<nn::RepeatedBlock*>(layer) != nullptr) {
      hooked->unit_hook().install(std::make_unique<SeparateRuns>());
    }
    if (mode == Mode::kOff) continue;
    hooked->unit_hook().install(std::make_unique<RecomputeBehavior>(mode == Mode::kSelective));
    num_blocks += 1;
  }
  return num_blocks;
}

}  // namespace automodel::distributed
