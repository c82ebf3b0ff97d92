#pragma once

#include <string>

#include "distributed/engine/engine.h"
#include "tensor/random.h"
#include "tensor/shard_spec.h"

namespace automodel::distributed {

/// The values of a parameter in tests: normal ones around 1 for factors, else around 0; whole
/// numbers are ids of one of four experts.
inline tensor::InitRule rule_by_name(const std::string& name, bool is_whole) {
  using tensor::InitRule;
  if (is_whole) return {InitRule::Kind::kUniform, 0, 4};
  const bool is_factor =
      name.find("norm") != std::string::npos || name.find("scal") != std::string::npos;
  return InitRule::normal(is_factor ? 1.0 : 0.0, 0.2);
}

/// Fills parameters by their names: equal numbers whoever holds which part.
inline void fill_by_name(Engine& engine) {
  for (const tensor::FlatShard& shard : engine.parameters()) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      const at::Tensor values = shard.view(segment);
      tensor::fill_initial_values(values, segment.spec,
                                  rule_by_name(segment.fqn, !values.is_floating_point()),
                                  tensor::RandomKey(9, segment.fqn));
    }
  }
  engine.parameters_changed();
}

}  // namespace automodel::distributed
