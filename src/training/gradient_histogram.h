#pragma once

#include <string>
#include <vector>

#include "comm/groups/process_group.h"
#include "core/histogram.h"
#include "distributed/engine/engine.h"

namespace automodel::training {

/// The gradients of a layer, or of a module outside the layers.
struct LayerHistogram {
  std::string layer;  ///< "model.layers.3", "lm_head"
  Histogram histogram;
};

/// The layer of a tensor by its name: up to its first number; without one, the tensor's module.
std::string layer_of(const std::string& fqn);

/// Histograms of the reduced gradients of all ranks, sorted by layer. An element counts once,
/// wherever and on how many ranks it is held. Buckets are a quarter of an octave wide, down to
/// 2^-40; what is smaller is in one. Numbers that are not finite are left out. `everybody`: all
/// ranks of the run. Collective over them; every rank gets the result.
std::vector<LayerHistogram> gradient_histograms(const distributed::Engine& engine,
                                                const comm::ProcessGroup& everybody);

}  // namespace automodel::training
