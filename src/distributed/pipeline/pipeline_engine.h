#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "distributed/engine/engine.h"

namespace automodel::distributed {

/// Combines the engines of a rank's pipeline stages: its shards are theirs, in the order of the
/// stages, and the norm is over all ranks' stages. The executor calls the stages' own engines
/// around forwards and backwards.
class PipelineEngine final : public Engine {
 public:
  /// `num_repeated`: elements of frozen parameters that a stage of another place has too.
  /// Collective over the pp group.
  PipelineEngine(std::vector<std::unique_ptr<Engine>> stages, comm::ProcessGroup pp_group,
                 int64_t num_repeated = 0);

  /// The engine of this rank's i-th stage.
  Engine& stage(size_t i) const { return *stages_[i]; }

  HeldPart held_part() const override;
  void begin_micro_batch(bool is_last) override;
  void end_micro_batch() override;
  void parameters_changed() override;
  void zero_gradients() override;
  void reduce_gradients() override;
  double gradient_norm() const override;
  std::vector<std::string> non_finite(ValuesOf values) const override;

 private:
  std::vector<std::unique_ptr<Engine>> stages_;
  comm::ProcessGroup pp_group_;
};

}  // namespace automodel::distributed
