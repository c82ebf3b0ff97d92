#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "nn/parallel_plan.h"
#include "tensor/key_map.h"
#include "tensor/shard_spec.h"

namespace automodel::distributed {

/// How gradients travel between replicas.
struct DataParallelOptions {
  at::Device device = at::kCPU;
  int64_t first_bucket_bytes = int64_t{1} << 20;
  int64_t bucket_bytes = int64_t{25} << 20;
};

/// Gives a module memory and keeps its replicas equal: every unit's parameters lie in one flat
/// buffer, gradients in another of the same layout that autograd adds into. Units are the plan's
/// blocks and, for all other parameters, the root. Parameters and gradients are whole on every rank
/// (ZeRO 0); the sharded placements use the same units and layouts.
class DataParallel final {
 public:
  /// Takes the memory of every parameter of `module` over. Collective over `group`: every rank
  /// builds the same module. Parameters that do not require gradients get no gradient memory.
  DataParallel(torch::nn::Module& module, const nn::ParallelPlan& plan, const tensor::KeyMap& keys,
               comm::ProcessGroup group, const DataParallelOptions& options);

  /// All parameters, one shard a unit and dtype, for loading, initialising and saving.
  const std::vector<tensor::FlatShard>& parameters() const { return parameters_; }
  /// Those that are trained and their gradients: equal units, segments and offsets.
  const std::vector<tensor::FlatShard>& trained() const { return trained_; }
  const std::vector<tensor::FlatShard>& gradients() const { return gradients_; }

  /// Elements of parameters (of trained ones), padding not counted.
  int64_t num_parameters() const;
  int64_t num_trained_parameters() const;

  void zero_gradients();

  /// Averages gradients over the group; all ranks, after the backward of the last micro-batch.
  void reduce_gradients();

  /// Norm of all gradients in float64.
  double gradient_norm() const;

  /// Sends rank 0's parameters to all; all ranks.
  void broadcast_parameters();

  const comm::ProcessGroup& group() const { return group_; }

 private:
  void bind(torch::nn::Module& module, const nn::ParallelPlan& plan, const tensor::KeyMap& keys);

  comm::ProcessGroup group_;
  DataParallelOptions options_;
  std::vector<tensor::FlatShard> parameters_;
  std::vector<tensor::FlatShard> trained_;
  std::vector<tensor::FlatShard> gradients_;
  std::vector<at::Tensor> gradient_arenas_;  // one a dtype; the gradient shards are slices
};

}  // namespace automodel::distributed
