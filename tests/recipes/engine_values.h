#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "distributed/engine.h"
#include "distributed/fill_by_name.h"
#include "tensor/random.h"
#include "tensor/shard_spec.h"

namespace automodel::recipes {

using distributed::fill_by_name;

/// The elements of a shard's piece, out of the whole tensor.
inline at::Tensor piece_of(const at::Tensor& whole, const tensor::ShardSpec& spec) {
  const at::Tensor flat = whole.reshape({-1});
  std::vector<at::Tensor> runs;
  for (const tensor::ShardRun& run : tensor::shard_runs(spec)) {
    runs.push_back(flat.narrow(0, run.global, run.numel));
  }
  return runs.empty() ? flat.narrow(0, 0, 0) : at::cat(runs);
}

/// |found - wanted| / scale.
inline double distance(const at::Tensor& found, const at::Tensor& wanted, double scale) {
  return (found - wanted).norm().item<double>() / std::max(scale, 1e-12);
}

}  // namespace automodel::recipes
