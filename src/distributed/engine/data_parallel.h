#pragma once

#include <torch/nn/module.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "distributed/engine/bucketed_reductions.h"
#include "distributed/engine/engine.h"
#include "distributed/engine/gradient_memory.h"
#include "distributed/fsdp/flat_memory.h"
#include "distributed/fsdp/flat_units.h"
#include "distributed/fsdp/gradient_check.h"
#include "nn/parallel_plan.h"
#include "tensor/key_map.h"

namespace automodel::distributed {

/// How gradients are exchanged between replicas.
struct DataParallelOptions {
  at::Device device = at::kCPU;
  int64_t first_bucket_bytes = int64_t{1} << 20;
  int64_t bucket_bytes = int64_t{25} << 20;
  GradientCheck gradient_check = GradientCheck::kNone;
  TraceSink* trace = nullptr;  ///< receives every all-reduce; may be null
};

/// Allocates a module's memory and keeps its replicas equal. Every unit's parameters are in one
/// flat buffer, and its gradients in another, to which autograd adds. Units are the plan's blocks,
/// an untied head and, for all other parameters, the root. Parameters and gradients are whole on
/// every rank (ZeRO 0). Gradients are stored in the order in which backward finishes them, the head
/// first and the root last, and are averaged while backward runs. On one rank, which averages
/// nothing, they have memory only from their unit's backward until zero_gradients(): activations
/// use it before.
class DataParallel final : public Engine {
 public:
  /// Takes over the memory of every parameter of `module`; values that parameters have are kept,
  /// those of the group's first rank on every rank. Collective over `group`: every rank builds the
  /// same module. Parameters that do not require gradients get no gradient memory.
  DataParallel(torch::nn::Module& module, const nn::ParallelPlan& plan, const tensor::KeyMap& keys,
               comm::ProcessGroup group, const DataParallelOptions& options);

  HeldPart held_part() const override { return {0, 1, group_.size(), group_.rank() == 0}; }
  void begin_micro_batch(bool is_last) override;
  void end_micro_batch() override {}
  BackwardStage backward_stage() override { return {.replicas = this}; }
  /// Called before the last backward of a step, after all its forwards. Gradients are averaged
  /// while it runs; start_reductions() starts those of units that it does not end, and
  /// reduce_gradients() waits for all.
  void prepare_for_backward() { reductions_->prepare_for_backward(); }
  /// Called before a backward that may not pass the outputs of all units.
  void allocate_gradients();
  void start_reductions() { reductions_->start(); }
  void zero_gradients() override;
  void keep_gradients() override;
  void reduce_gradients() override;
  double gradient_norm() const override;
  GradientCheck gradient_check() const override { return options_.gradient_check; }

 private:
  std::vector<at::Tensor> lay_gradients(const std::vector<FlatParameters>& groups,
                                        const std::vector<std::string>& finished);
  at::Tensor make_gradients(const FlatParameters& group, const std::vector<std::string>& units);
  std::vector<at::Tensor> begin_gradients(torch::nn::Module& module,
                                          const std::vector<FlatParameters>& groups,
                                          const std::vector<std::string>& units);
  void bind(torch::nn::Module& module, const nn::ParallelPlan& plan, const tensor::KeyMap& keys);

  DataParallelOptions options_;
  std::optional<GradientMemory> own_gradients_;  // on one rank
  std::vector<OwnerMark> owners_;                // of the parameters' memory
  std::vector<at::Tensor> gradient_arenas_;      // on several, one per dtype
  std::optional<BucketedReductions> reductions_;
  std::vector<std::pair<at::Tensor, at::Tensor>> bound_;  // trained parameters and their gradients
};

}  // namespace automodel::distributed
