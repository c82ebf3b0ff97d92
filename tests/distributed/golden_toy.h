#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <cmath>
#include <memory>
#include <vector>

#include "core/text.h"
#include "distributed/fsdp/flat_units.h"
#include "distributed/toy_modules.h"
#include "nn/layer_list.h"
#include "tensor/batch.h"
#include "tensor/key_map.h"
#include "tensor/named_tensors.h"
#include "tensor/shard_spec.h"

namespace automodel::distributed {

/// x + relu(x w1 + b) w2.
class GoldenToyBlock final : public HookedToy {
 public:
  GoldenToyBlock()
      : w1_(register_parameter("w1", tensor::placeholder({6, 5}, at::kFloat))),
        b_(register_parameter("b", tensor::placeholder({5}, at::kFloat))),
        w2_(register_parameter("w2", tensor::placeholder({5, 6}, at::kFloat))) {}

 private:
  at::Tensor run(const at::Tensor& x) override {
    return x + at::relu(at::addmm(b_, x, w1_)).matmul(w2_);
  }

  at::Tensor w1_, b_, w2_;
};

/// The toy of scripts/goldens/make_fsdp_goldens.py: three blocks between a scale and a head.
class GoldenToy final : public torch::nn::Module, public nn::HookedModule {
 public:
  GoldenToy()
      : scale_(register_parameter("scale", tensor::placeholder({6}, at::kFloat))),
        head_(register_parameter("head", tensor::placeholder({6, 5}, at::kFloat))) {
    const auto blocks = register_module("blocks", std::make_shared<nn::LayerList>());
    for (int i = 0; i < 3; ++i) {
      blocks_.push_back(blocks->register_module(cat(i), std::make_shared<GoldenToyBlock>()));
    }
  }

  nn::UnitHook& unit_hook() override { return hook_; }
  tensor::KeyMap keys() const { return own_names(*this); }

  tensor::NamedTensors initial_values() const {
    tensor::NamedTensors values;
    for (const tensor::ParameterPart& part : keys()) {
      const at::Tensor value = at::empty(part.shape);
      const auto p = static_cast<double>(values.size());
      float* data = value.data_ptr<float>();
      for (int64_t i = 0; i < value.numel(); ++i) {
        data[i] = static_cast<float>(0.6 * std::sin(1.7 * static_cast<double>(i) + 0.9 * p + 0.3));
      }
      values.emplace_back(part.name, value);
    }
    return values;
  }

  /// Rows [first, first + count): their numbers as input_ids, and labels; one column each.
  static tensor::Batch rows(int64_t first, int64_t count) {
    tensor::Batch batch;
    batch.input_ids = at::arange(first, first + count).unsqueeze(1);
    const at::Tensor& n = batch.input_ids;
    batch.labels = (n * 3).remainder(5).masked_fill(n.remainder(7).eq(6), -100);
    return batch;
  }

  at::Tensor loss(const tensor::Batch& batch, double divisor) {
    return hook_({}, [this, batch, divisor](const nn::TensorList&) {
      return nn::TensorList{run(batch, divisor)};
    })[0];
  }

 private:
  at::Tensor run(const tensor::Batch& batch, double divisor) {
    const at::Tensor n = batch.input_ids.to(at::kDouble);
    const at::Tensor x = at::sin(n * 0.7 + at::arange(6, at::kDouble) * 1.3).to(at::kFloat);
    at::Tensor hidden = x.to(scale_.scalar_type()) * scale_;
    for (const auto& block : blocks_) hidden = block->forward(hidden);
    const at::Tensor scores = at::log_softmax(hidden.matmul(head_).to(at::kFloat), 1);
    return at::nll_loss(scores, batch.labels.view(-1), {}, at::Reduction::Sum, -100) / divisor;
  }

  nn::UnitHook hook_;
  at::Tensor scale_, head_;
  std::vector<std::shared_ptr<GoldenToyBlock>> blocks_;
};

}  // namespace automodel::distributed
