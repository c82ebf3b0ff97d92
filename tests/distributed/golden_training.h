#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>

#include "comm/groups/process_group.h"
#include "distributed/engine/engine.h"
#include "tensor/batch.h"
#include "tensor/key_map.h"
#include "tensor/named_tensors.h"
#include "tensor/shard_spec.h"

namespace automodel::distributed {

using Tensors = std::map<std::string, at::Tensor>;  // by Hugging Face names, in their order

constexpr int64_t kGoldenRows = 12;  // of a step
constexpr int64_t kGoldenIgnoreIndex = -100;

/// Rows [first, first + count) of the Llama of scripts/goldens/make_fsdp_goldens.py.
inline tensor::Batch golden_llama_rows(int64_t first, int64_t count) {
  constexpr int64_t kLength = 16;
  const at::Tensor n = at::arange(first, first + count).unsqueeze(1);
  const at::Tensor t = at::arange(kLength + 1).unsqueeze(0);
  const at::Tensor tokens = (n * n * 31 + t * t * 17 + n * t * 7).remainder(124) + 4;
  const at::Tensor place = t.narrow(1, 0, kLength);
  const at::Tensor is_ignored = (n + place).remainder(5).eq(0).logical_or(place < n.remainder(4));
  tensor::Batch batch;
  batch.input_ids = tokens.narrow(1, 0, kLength).contiguous();
  batch.labels = tokens.narrow(1, 1, kLength).masked_fill(is_ignored, kGoldenIgnoreIndex);
  return batch;
}

/// Gives an engine's parameters the values of whole tensors.
inline void load_golden(const Engine& engine, const tensor::NamedTensors& values) {
  const Tensors by_name(values.begin(), values.end());
  for (const tensor::FlatShard& shard : engine.parameters()) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      const at::Tensor flat = by_name.at(segment.fqn).reshape({-1});
      shard.view(segment).copy_(flat.narrow(0, segment.spec.flat_begin, segment.spec.numel()));
    }
  }
}

/// The whole tensors of flat shards; every rank of `shard` has all of them.
inline Tensors whole_tensors(const std::vector<tensor::FlatShard>& shards,
                             const tensor::KeyMap& keys, const comm::ProcessGroup& shard) {
  Tensors tensors;
  for (const tensor::ParameterPart& part : keys) tensors[part.name] = at::zeros(part.shape);
  for (const tensor::FlatShard& held : shards) {
    for (const tensor::FlatSegment& segment : held.segments) {
      tensors.at(segment.fqn)
          .view(-1)
          .narrow(0, segment.spec.flat_begin, segment.spec.numel())
          .copy_(held.view(segment));
    }
  }
  for (const auto& [name, value] : tensors) shard.all_reduce(value, comm::ReduceOp::kSum);
  return tensors;
}

/// |a - b| / |b|, in float64.
inline double golden_distance(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor exact = b.to(at::kDouble);
  return ((a.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

}  // namespace automodel::distributed
