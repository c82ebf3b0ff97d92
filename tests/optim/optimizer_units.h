#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/text.h"
#include "optim/optimizer.h"
#include "tensor/shard_spec.h"

namespace automodel::optim {

/// A unit of tensors of given shapes, in a buffer of a dtype.
inline tensor::FlatShard unit_of(const std::vector<std::vector<int64_t>>& shapes,
                                 at::ScalarType dtype) {
  tensor::FlatShard unit{"", {}, {}};
  int64_t numel = 0;
  for (const auto& shape : shapes) {
    unit.segments.push_back(
        {cat("w", unit.segments.size()), tensor::ShardSpec::whole(shape), numel});
    numel += unit.segments.back().spec.numel();
  }
  unit.buffer = at::zeros({numel}, dtype);
  return unit;
}

/// A unit's state of a name; null when there is none.
inline const tensor::FlatShard* find_state(Optimizer& optimizer, const std::string& name,
                                           size_t unit = 0) {
  for (const OptimizerState& state : optimizer.state()) {
    if (state.name == name) return &state.shards.at(unit);
  }
  return nullptr;
}

/// A tensor "w" of zeros in parts of ranks: each a unit of its own with its optimizer.
struct SharedTensor {
  using Make = std::function<std::unique_ptr<Optimizer>(std::vector<tensor::FlatShard> parameters,
                                                        std::vector<tensor::FlatShard> gradients)>;

  std::vector<tensor::FlatShard> parameters, gradients;
  std::vector<std::unique_ptr<Optimizer>> optimizers;

  /// `borders`: of the ranks' elements, from 0 to the number of them. Gradients are float32.
  SharedTensor(const std::vector<int64_t>& borders, at::ScalarType dtype, const Make& make) {
    for (size_t i = 0; i + 1 < borders.size(); ++i) {
      tensor::ShardSpec spec = tensor::ShardSpec::whole({borders.back()});
      spec.flat_begin = borders[i];
      spec.flat_end = borders[i + 1];
      // Behind padding, as in a unit.
      const tensor::FlatShard shard{"", at::zeros({16 + spec.numel()}, dtype), {{"w", spec, 16}}};
      parameters.push_back(shard);
      gradients.push_back({"", at::zeros({16 + spec.numel()}), shard.segments});
      optimizers.push_back(make({parameters.back()}, {gradients.back()}));
    }
  }

  void step(const at::Tensor& gradient, const StepRates& rates) {
    for (size_t i = 0; i < optimizers.size(); ++i) {
      const tensor::FlatSegment& segment = gradients[i].segments[0];
      gradients[i].view(segment).copy_(
          gradient.narrow(0, segment.spec.flat_begin, segment.spec.numel()));
      optimizers[i]->step(rates);
    }
  }

  at::Tensor values() const {
    std::vector<at::Tensor> parts;
    for (const tensor::FlatShard& shard : parameters)
      parts.push_back(shard.view(shard.segments[0]));
    return at::cat(parts);
  }

  /// The ranks' state of a name, which there must be.
  at::Tensor state(const std::string& name) const {
    std::vector<at::Tensor> parts;
    for (const auto& optimizer : optimizers) parts.push_back(find_state(*optimizer, name)->buffer);
    return at::cat(parts);
  }
};

}  // namespace automodel::optim
