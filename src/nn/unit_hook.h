#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

namespace automodel::nn {

using TensorList = std::vector<at::Tensor>;

/// The computation of a unit, from its input tensors to its output tensors; differentiable.
using UnitBody = std::function<TensorList(const TensorList&)>;

/// Runs around a unit's forward: gathers and frees its parameters, runs tensor-parallel entry and
/// exit, recomputes. `distributed` implements it, `nn` only calls it.
class UnitBehavior {
 public:
  virtual ~UnitBehavior() = default;

  /// Runs `body` on `inputs`. Called once per forward; a recomputing behaviour keeps a copy of
  /// `body` and calls it again during backward.
  virtual TensorList run(const TensorList& inputs, const UnitBody& body) = 0;
};

/// The seam in a module that may become a unit. A module owns one and sends its forward through it:
///
///   at::Tensor forward(const at::Tensor& x) {
///     return hook_({x}, [this](const TensorList& in) { return TensorList{body(in[0])}; })[0];
///   }
///
/// Tensors that need gradients go through the list; whatever else the body reads it captures by
/// value: where blocks are recomputed it runs again in backward, when the forward's own variables
/// are gone.
class UnitHook final {
 public:
  UnitHook() = default;
  UnitHook(const UnitHook&) = delete;
  UnitHook& operator=(const UnitHook&) = delete;

  /// Adds a behaviour around those that were installed before; the last one is outermost.
  void install(std::unique_ptr<UnitBehavior> behavior) {
    behaviors_.push_back(std::move(behavior));
  }

  bool has_behavior() const { return !behaviors_.empty(); }

  /// The installed behaviour of a type; null when there is none.
  template <typename Behavior>
  Behavior* find() const {
    for (const auto& behavior : behaviors_) {
      if (auto* found = dynamic_cast<Behavior*>(behavior.get())) return found;
    }
    return nullptr;
  }

  TensorList operator()(const TensorList& inputs, const UnitBody& body) const {
    return run(static_cast<int>(behaviors_.size()) - 1, inputs, body);
  }

 private:
  TensorList run(int level, const TensorList& inputs, const UnitBody& body) const {
    if (level < 0) return body(inputs);
    return behaviors_[static_cast<size_t>(level)]->run(
        inputs, [this, level, body](const TensorList& in) { return run(level - 1, in, body); });
  }

  std::vector<std::unique_ptr<UnitBehavior>> behaviors_;
};

/// A module whose forward goes through a hook; `distributed` looks for this interface.
class HookedModule {
 public:
  virtual ~HookedModule() = default;
  virtual UnitHook& unit_hook() = 0;
};

}  // namespace automodel::nn
