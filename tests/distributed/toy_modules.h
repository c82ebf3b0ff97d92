#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "distributed/engine/engine.h"
#include "distributed/fsdp/fully_shard.h"
#include "distributed/groups/sharding_groups.h"
#include "nn/layer_list.h"
#include "tensor/random.h"
#include "tensor/shard_spec.h"

namespace automodel::distributed {

/// A module with a hook and a forward of one tensor, as users write them.
class HookedToy : public torch::nn::Module, public nn::HookedModule {
 public:
  nn::UnitHook& unit_hook() override { return hook_; }

  at::Tensor forward(const at::Tensor& x) {
    return hook_({x}, [this](const nn::TensorList& in) { return nn::TensorList{run(in[0])}; })[0];
  }

 protected:
  virtual at::Tensor run(const at::Tensor& x) = 0;

  /// A parameter whose elements follow sin, at `phase`.
  at::Tensor make(const std::string& name, at::IntArrayRef sizes, double phase) {
    int64_t numel = 1;
    for (const int64_t size : sizes) numel *= size;
    const at::Tensor values = at::sin(at::arange(numel, at::kDouble) * 0.7 + phase) * 0.5;
    return register_parameter(name, values.to(at::kFloat).view(sizes));
  }

 private:
  nn::UnitHook hook_;
};

/// x + relu(x w1 + b) w2, of 6 features.
class ResidualToy final : public HookedToy {
 public:
  explicit ResidualToy(double phase) {
    in_ = make("in", {6, 5}, phase);
    bias_ = make("bias", {5}, phase + 1);
    out_ = make("out", {5, 6}, phase + 2);
  }

 private:
  at::Tensor run(const at::Tensor& x) override {
    return x + at::relu(at::addmm(bias_, x, in_)).matmul(out_);
  }

  at::Tensor in_, bias_, out_;
};

/// Blocks in a layer list between an input and an output scale of the root's own.
class ToyNet final : public HookedToy {
 public:
  explicit ToyNet(int num_blocks = 3) {
    scale_ = make("scale", {6}, 0.3);
    auto layers = register_module("layers", std::make_shared<nn::LayerList>());
    for (int i = 0; i < num_blocks; ++i) {
      blocks_.push_back(
          layers->register_module(std::to_string(i), std::make_shared<ResidualToy>(10.0 * i)));
    }
  }

  at::Tensor loss(const at::Tensor& x) { return forward(x).pow(2).mean(); }
  const std::vector<std::shared_ptr<ResidualToy>>& blocks() const { return blocks_; }

 private:
  at::Tensor run(const at::Tensor& x) override {
    at::Tensor hidden = x * scale_;
    for (const auto& block : blocks_) hidden = block->forward(hidden);
    return hidden * scale_;
  }

  at::Tensor scale_;
  std::vector<std::shared_ptr<ResidualToy>> blocks_;
};

/// The n-th input, [4, 6].
inline at::Tensor toy_input(int64_t number) {
  return at::sin(at::arange(24, at::kFloat) + static_cast<double>(number)).view({4, 6});
}

/// fully_shard on every block, then on the root; all ranks of one group.
inline FSDPModule& shard_toy(ToyNet& net, const comm::ProcessGroup& group,
                             const ShardingOptions& options = {}) {
  for (const auto& block : net.blocks()) fully_shard(*block, ShardingGroups::of(group), options);
  return fully_shard(net, ShardingGroups::of(group), options);
}

/// The texts of the tree's events, which are cleared.
inline std::vector<std::string> take_events(FSDPModule& root) {
  std::vector<std::string> texts;
  for (const UnitEvent& event : root.events()) texts.push_back(event.text());
  root.clear_events();
  return texts;
}

/// Those that begin with one of the words.
inline std::vector<std::string> only(const std::vector<std::string>& events,
                                     const std::vector<std::string>& words) {
  std::vector<std::string> kept;
  for (const std::string& event : events) {
    for (const std::string& word : words) {
      if (event.starts_with(word + " ")) kept.push_back(event);
    }
  }
  return kept;
}

}  // namespace automodel::distributed
