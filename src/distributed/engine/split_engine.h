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
/// data-parallel ranks, which hold the same part of the module, in agreement. This one adds what
/// tensor-parallel ranks need: parameters that all of them hold whole get the same gradient (by one
/// collective a step), and the norm counts every element once. Its own units are the inner engine's
/// and need no exchange.
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
  void keep_gradients() override { inner_->keep_gradients(); }
  void reduce_gradients() override;
  double gradient_norm() const override;
  GradientCheck gradient_check() const override { return inner_->gradient_check(); }
  std::vector<std::string> non_finite(ValuesOf values) const override;

 private:
  std::unique_ptr<Engine> inner_;
  comm::ProcessGroup tp_group_;
  std::set<std::string> summed_;
};

/// The shards that this rank saves: its own units, and those parts of the others that no other rank
/// saves.
std::vector<tensor::FlatShard> saved_shards(const std::vector<tensor::FlatShard>& shards,
                                            const Engine& engine);

}  // namespace automodel::distributed
