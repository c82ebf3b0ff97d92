#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "core/error.h"

namespace automodel::kernels {

/// The autograd nodes of some functions that can make one of their outputs again, to the bit, from
/// what they keep for their backward. A function F names that output, F::kOutputMadeAgain, and
/// makes it in F::again(AutogradContext&).
template <typename... Functions>
struct NodesOf {
  /// Whether `node` is one of them and `output` the output that it can make again.
  static bool has_made(torch::autograd::Node& node, uint32_t output) {
    return ((output == Functions::kOutputMadeAgain && as<Functions>(node) != nullptr) || ...);
  }

  /// The output again; for nodes that has_made() was true for.
  static at::Tensor again(torch::autograd::Node& node) {
    at::Tensor out;
    const bool is_known = (make<Functions>(node, out) || ...);
    AM_CHECK(is_known);
    return out;
  }

 private:
  template <typename Function>
  static torch::autograd::CppNode<Function>* as(torch::autograd::Node& node) {
    return dynamic_cast<torch::autograd::CppNode<Function>*>(&node);
  }

  template <typename Function>
  static bool make(torch::autograd::Node& node, at::Tensor& out) {
    auto* one = as<Function>(node);
    if (one == nullptr) return false;
    out = Function::again(one->ctx_);
    return true;
  }
};

/// The node that has made an input, held by the node of an operation that reads the input. The
/// reader's node passes its gradient on to the maker, so it holds the maker alive anyway.
struct Maker : torch::CustomClassHolder {
  explicit Maker(std::shared_ptr<torch::autograd::Node> node) : node(std::move(node)) {}
  std::shared_ptr<torch::autograd::Node> node;
};

inline constexpr const char* kMaker = "maker_of_input";

/// For forward: notes that `maker` makes the input again.
inline void note_maker(torch::autograd::AutogradContext& context,
                       std::shared_ptr<torch::autograd::Node> maker) {
  context.saved_data[kMaker] =
      c10::IValue::make_capsule(c10::make_intrusive<Maker>(std::move(maker)));
}

/// For backward: the node that was noted; null where none was.
inline torch::autograd::Node* noted_maker(torch::autograd::AutogradContext& context) {
  const auto maker = context.saved_data.find(kMaker);
  if (maker == context.saved_data.end()) return nullptr;
  const auto holder = maker->second.toCapsule();
  return static_cast<const Maker&>(*holder).node.get();
}

}  // namespace automodel::kernels
