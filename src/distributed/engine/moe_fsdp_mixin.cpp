#include "distributed/engine/moe_fsdp_mixin.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "distributed/engine/data_parallel.h"
#include "distributed/tensor/tp_layers.h"

namespace automodel::distributed {

namespace {

constexpr std::string_view kMultimodalNames[] = {"visual",
                                                 "vision",
                                                 "vision_tower",
                                                 "vision_model",
                                                 "vit_model",
                                                 "image_encoder",
                                                 "vision_encoder",
                                                 "audio_tower",
                                                 "audio_encoder",
                                                 "audio_model",
                                                 "embed_vision",
                                                 "embed_audio",
                                                 "mm_projector",
                                                 "aligner",
                                                 "multi_modal_projector",
                                                 "multimodal_projector",
                                                 "vision_projector",
                                                 "vit_large_projector",
                                                 "audio_projector"};

/// Collects units in the order they are found, without repetition; skips null and modules that are
/// no units.
class FoundUnits final {
 public:
  void add(const torch::nn::Module* module) {
    FSDPModule* unit = module == nullptr ? nullptr : fsdp_module(*module);
    const bool is_new =
        unit != nullptr && std::find(units_.begin(), units_.end(), unit) == units_.end();
    if (is_new) units_.push_back(unit);
  }

  void add_with_below(const torch::nn::Module& module) {
    add(&module);
    for (const auto& child : module.named_children()) add_with_below(*child.value());
  }

  /// Adds the towers and projectors below a module.
  void add_multimodal(const torch::nn::Module& module) {
    for (const auto& child : module.named_children()) {
      const bool is_multimodal = std::find(std::begin(kMultimodalNames), std::end(kMultimodalNames),
                                           child.key()) != std::end(kMultimodalNames);
      if (is_multimodal) {
        add_with_below(*child.value());
      } else {
        add_multimodal(*child.value());
      }
    }
  }

  void add_experts(const torch::nn::Module& block) {
    for (const char* name : {"mlp", "moe"}) add(child_of(child_of(&block, name), "experts"));
  }

  std::vector<FSDPModule*> take() { return std::move(units_); }

 private:
  std::vector<FSDPModule*> units_;
};

void configure_all(const std::vector<FSDPModule*>& units, const BackwardSwitches& switches) {
  for (FSDPModule* unit : units) configure_fsdp_module(*unit, switches);
}

}  // namespace

std::vector<FSDPModule*> iter_fsdp_modules(torch::nn::Module& module) {
  FoundUnits found;
  found.add(&module);
  const torch::nn::Module* inner = child_of(&module, "model");
  if (inner == nullptr) inner = &module;
  found.add(inner);
  found.add(child_of(inner, "embed_tokens"));
  found.add(child_of(&module, "lm_head"));
  found.add_multimodal(module);
  if (const auto* layers = child_of(inner, "layers")) {
    for (const auto& block : layers->named_children()) found.add_experts(*block.value());
  }
  if (const auto* layers = child_of(child_of(&module, "mtp"), "layers")) {
    for (const auto& block : layers->named_children()) {
      found.add(block.value().get());
      found.add_experts(*block.value());
    }
  }
  return found.take();
}

void disable_fsdp_for_moe_module(torch::nn::Module& module) {
  configure_all(iter_fsdp_modules(module), kDeferredBackward);
}

std::function<void()> run_post_backward_hooks(FSDPModule& unit) {
  for (FSDPModule* other : unit.tree_units()) {
    if (!other->parameters().empty()) other->post_backward();
  }
  return [&unit] { unit.root_post_backward(); };
}

void run_post_backward_for_moe_module(torch::nn::Module& module) {
  const std::vector<FSDPModule*> units = iter_fsdp_modules(module);
  configure_all(units, kFinalBackward);
  std::vector<std::function<void()>> callbacks;
  for (FSDPModule* unit : units) callbacks.push_back(run_post_backward_hooks(*unit));
  for (const auto& callback : callbacks) callback();
}

void MoEFSDPSyncMixin::prepare_for_grad_accumulation(bool) {
  if (enables_fsdp_optimizations()) disable_fsdp_for_moe_module(synced_module());
}

void MoEFSDPSyncMixin::prepare_for_final_backward(bool) {
  if (!enables_fsdp_optimizations()) return;
  configure_all(iter_fsdp_modules(synced_module()), kFinalBackward);
}

namespace {

BackwardOutcome perform_backward(const std::string& backward_type,
                                 const BackwardArguments& arguments) {
  if (backward_type == "full") return {stage_backward(arguments.graph), std::nullopt};
  if (backward_type == "input") {
    auto [grads, rest] = stage_backward_input(arguments.graph);
    return {grads, std::move(rest)};
  }
  if (backward_type == "weight") {
    AM_CHECK(arguments.param_groups != nullptr, "a weight backward without an input backward");
    arguments.param_groups->run();
    return {};
  }
  throw UserError(cat("Unknown backward type: ", backward_type));
}

/// Runs a backward over units; a "weight" does not trigger their hooks, so this does their work.
BackwardOutcome perform_over(const std::vector<FSDPModule*>& units,
                             const std::string& backward_type, const BackwardArguments& arguments) {
  const bool runs_hooks = backward_type != "weight" || arguments.param_groups == nullptr ||
                          arguments.param_groups->is_whole();
  if (runs_hooks) return perform_backward(backward_type, arguments);
  std::vector<FSDPModule*> roots;
  for (const FSDPModule* unit : units) {
    FSDPModule* root = unit->tree_units().front();
    if (std::find(roots.begin(), roots.end(), root) == roots.end()) roots.push_back(root);
  }
  for (FSDPModule* root : roots) root->begin_backward_of_weights();
  BackwardOutcome outcome = perform_backward(backward_type, arguments);
  for (FSDPModule* root : roots) root->root_post_backward();
  return outcome;
}

BackwardSwitches switches_of(const BackwardStage& stage, const std::string& backward_type) {
  if (!stage.reduce_grad_per_microbatch) return kDeferredBackward;
  if (backward_type != "input") return kFinalBackward;
  return {
      .is_last_backward = false, .reshard_after_backward = true, .requires_gradient_sync = false};
}

}  // namespace

BackwardOutcome patched_backward_maybe_with_nosync(const BackwardStage& stage,
                                                   const std::string& backward_type,
                                                   const BackwardArguments& arguments,
                                                   bool last_backward) {
  if (DataParallel* replicas = stage.replicas) {
    replicas->allocate_gradients();
    last_backward ? replicas->prepare_for_backward() : replicas->begin_micro_batch(false);
    BackwardOutcome outcome = perform_backward(backward_type, arguments);
    if (last_backward) replicas->start_reductions();
    return outcome;
  }
  if (stage.mixin != nullptr) {
    torch::nn::Module& module = stage.mixin->synced_module();
    disable_fsdp_for_moe_module(module);
    BackwardOutcome outcome = perform_over(iter_fsdp_modules(module), backward_type, arguments);
    if (last_backward) run_post_backward_for_moe_module(module);
    return outcome;
  }
  if (FSDPModule* unit = stage.unit) {
    configure_fsdp_module(*unit, switches_of(stage, backward_type));
    BackwardOutcome outcome = perform_over({unit}, backward_type, arguments);
    if (last_backward) {
      configure_fsdp_module(*unit, kFinalBackward);
      run_post_backward_hooks (*unit)();
    }
    return outcome;
  }
  return perform_backward(backward_type, arguments);
}

}  // namespace automodel::distributed
