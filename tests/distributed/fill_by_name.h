#pragma once

#include "distributed/engine/engine.h"
#include "tensor/random.h"
#include "tensor/shard_spec.h"

namespace automodel::distributed {

/// Fills parameters by their names: equal numbers whoever holds which part.
inline void fill_by_name(Engine& engine) {
  for (const tensor::FlatShard& shard : engine.parameters()) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      const bool is_factor = segment.fqn.find("norm") != std::string::npos ||
                             segment.fqn.find("scal") != std::string::npos;
      tensor::fill_initial_values(shard.view(segment), segment.spec,
                                  tensor::InitRule::normal(is_factor ? 1.0 : 0.0, 0.2),
                                  tensor::RandomKey(9, segment.fqn));
    }
  }
  engine.parameters_changed();
}

}  // namespace automodel::distributed
