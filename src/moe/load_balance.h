#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <string>
#include <vector>

#include "moe/counting_router.h"
#include "tensor/key_map.h"
#include "tensor/shard_spec.h"

namespace automodel::moe {

/// A layer's router, and the Hugging Face name of the correction that its load changes; "" if none,
/// or if the router is frozen.
struct LayerRouter {
  CountingRouter* router;
  std::string correction;
};

/// The routers of a model's layers, in order.
std::vector<LayerRouter> routers_of(const torch::nn::Module& model, const tensor::KeyMap& keys);

/// The load of a layer's experts in one step.
struct LayerLoad {
  std::string layer;  ///< "layer 3"
  at::Tensor load;    ///< tokens of all ranks per expert, float32 [E] on the CPU
  double aux_loss = 0;
};

/// Takes the routers' counts and sums them over ranks: every rank calls `sum` once, which adds up a
/// float32 tensor in place. Aux losses are this rank's.
std::vector<LayerLoad> take_loads(const std::vector<LayerRouter>& routers,
                                  const std::function<void(at::Tensor)>& sum);

/// Moves each layer's e_score_correction_bias by gate_bias_update_factor towards even load:
/// bias += factor * sign(mean(load) - load). `parameters` are this rank's shards. Returns whether
/// anything changed. Upstream's Gate.update_bias, but on the load of all ranks on every mesh.
bool update_correction_biases(const std::vector<LayerRouter>& routers,
                              const std::vector<LayerLoad>& loads,
                              const std::vector<tensor::FlatShard>& parameters);

}  // namespace automodel::moe
