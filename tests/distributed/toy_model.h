#pragma once

#include <string>

#include "distributed/engine/sharded_engine.h"
#include "distributed/fsdp/flat_units.h"
#include "distributed/strategies/nvfsdp_options.h"
#include "distributed/strategies/parallelizer.h"
#include "distributed/toy_modules.h"

namespace automodel::distributed {

/// A ToyNet and what a parallelizer is told of it.
struct ToyModel {
  explicit ToyModel(const std::string& architecture = "ToyForCausalLM",
                    at::ScalarType dtype = at::kFloat) {
    net.to(dtype);
    facts.keys = own_names(net);
    facts.architecture = architecture;
    for (int i = 0; i < 3; ++i) facts.plan.blocks.push_back(cat("layers.", i));
  }

  ParallelModel model() { return {net, facts, {}}; }

  ToyNet net;
  TpModel facts;
};

/// Megatron-FSDP's arguments with the toy's layers, of a class that only this table knows, as
/// units.
inline NvfsdpOptions toy_units() {
  NvfsdpOptions options;
  options.classes.add({"toys.ToyDecoderLayer", "ToyDecoderLayer", "layer", ""});
  options.classes.add_model("ToyForCausalLM", {"ToyDecoderLayer", ""});
  options.config.megatron_fsdp_unit_modules = {{"toys.ToyDecoderLayer"}};
  return options;
}

/// One data-parallel axis under upstream's names; the others have one rank.
inline DeviceMesh data_mesh(const comm::ProcessGroup& group) {
  const auto one = comm::ProcessGroup::solo();
  return DeviceMesh({{"dp_replicate", one},
                     {"dp_shard_cp", group},
                     {"dp_cp", group},
                     {"dp", group},
                     {"cp", one},
                     {"tp", one}});
}

inline ShardedEngine& sharded(Engine& engine) {
  return dynamic_cast<ShardedEngine&>(engine);
}

/// One micro-batch and its reduction.
inline double norm_of_a_step(ToyNet& net, Engine& engine) {
  engine.begin_micro_batch(true);
  net.loss(toy_input(0)).backward();
  engine.end_micro_batch();
  engine.reduce_gradients();
  return engine.gradient_norm();
}

}  // namespace automodel::distributed
