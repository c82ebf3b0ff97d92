#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "comm/ranks.h"
#include "distributed/engine/engine.h"
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

/// Step 3.5's goldens, whose gates are bounded and whose routed part is scaled by 3, Gemma 4's with
/// inputs of each layer, and GPT-Neo's, whose scores are not scaled down, magnify float32's
/// roundings to 5e-6 and more, by the CPU's kind and the compiler's options; they are compared in
/// float64.
inline bool magnifies_roundings(std::string_view golden) {
  return golden.starts_with("step3p5") || golden == "gemma4_layer_inputs" ||
         golden == "gemma4_everything_padding" || golden == "gpt_neo";
}

/// Whether a gradient is rounding alone: a bias of OPT's keys, which do not rotate, adds one number
/// to all scores of a query.
inline bool is_gradient_rounding(std::string_view fqn) {
  return fqn.starts_with("model.decoder.layers.") && fqn.ends_with(".k_proj.bias");
}

/// |found - wanted| / scale.
inline double distance(const at::Tensor& found, const at::Tensor& wanted, double scale) {
  return (found - wanted).norm().item<double>() / std::max(scale, 1e-12);
}

/// The gradients of an engine that holds everything, by Hugging Face names.
inline std::map<std::string, at::Tensor> whole_gradients(const distributed::Engine& engine) {
  std::map<std::string, at::Tensor> gradients;
  for (const tensor::FlatShard& shard : engine.gradients()) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      gradients[segment.fqn] = shard.view(segment);
    }
  }
  return gradients;
}

/// A rank's gradients are those of the whole model, each to `tolerance` of its norm. In ranks of
/// expect_ranks.
inline void expect_gradients(const distributed::Engine& engine,
                             const std::map<std::string, at::Tensor>& wanted, double tolerance,
                             const std::string& name) {
  for (const tensor::FlatShard& shard : engine.gradients()) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      const at::Tensor& all = wanted.at(segment.fqn);
      if (is_gradient_rounding(segment.fqn)) continue;
      const double off =
          distance(shard.view(segment), piece_of(all, segment.spec), all.norm().item<double>());
      comm::expect(off < tolerance, cat(name, ": gradient of ", segment.fqn, " is off by ", off));
    }
  }
}

}  // namespace automodel::recipes
