#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "distributed/engine/engine.h"
#include "distributed/fsdp/gradient_check.h"
#include "distributed/tensor/split_module.h"

namespace automodel::distributed {

/// An engine of a module that is split over tensor-parallel ranks. The inner engine keeps the
/// data-parallel ranks together, each of which holds the same part of the module; this one adds
/// what the tensor-parallel ranks owe each other: parameters that all of them hold whole get the
/// same gradient (in one collective a step), and the norm counts every element once. Its own units
/// are the inner engine's: they owe nobody anything.
class SplitEngine final : public Engine {
 public:
  SplitEngine(std::unique_ptr<Engine> inner, const comm::ProcessGroup& tp_group,
              const SplitModule& split);

  HeldPart held_part() const override;
  void begin_micro_batch(bool is_last) override { inner_->begin_micro_batch(is_last); }
  void end_micro_batch() override { inner_->end_micro_batch(); }
  BackwardStage backward_stage() override { return inner_->backward_stage(); }
  void parameters_changed() override { inner_->parameters_changed(); }
  void zero_gradients() override { inner_->zero_gradients(); }
  void reduce_gradients() override;
  double gradient_norm() const override;
  GradientCheck gradient_check() const override { return inner_->gradient_check(); }
  std::vector<std::string> non_finite_gradients() const override;

 private:
  std::unique_ptr<Engine> inner_;
  comm::ProcessGroup tp_group_;
  std::set<std::string> summed_;
};

/// An engine's shards as this rank saves them: its own units, and of the others what no other rank
/// saves.
std::vector<tensor::FlatShard> saved_shards(const std::vector<tensor::FlatShard>& shards,
                                            const Engine& engine);

}  // namespace automodel::distributed
