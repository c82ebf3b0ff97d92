#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "distributed/fsdp/flat_units.h"
#include "nn/parallel_plan.h"
#include "nn/unit_hook.h"

namespace automodel::distributed {

/// The sizes of a block's own input, every time it computes; a block that recomputes in backward
/// does so twice.
using BlockForwards = std::vector<std::vector<int64_t>>;

/// Inside everything that is installed later: sees what the block itself is given.
class BlockWatcher final : public nn::UnitBehavior {
 public:
  explicit BlockWatcher(BlockForwards& seen) : seen_(seen) {}

  nn::TensorList run(const nn::TensorList& inputs, const nn::UnitBody& body) override {
    seen_.push_back(inputs[0].sizes().vec());
    return body(inputs);
  }

 private:
  BlockForwards& seen_;
};

/// Records in `seen` every forward of the blocks of a model without an engine.
inline void watch_blocks(torch::nn::Module& module, const nn::ParallelPlan& plan,
                         BlockForwards& seen) {
  for (const std::string& block : plan.blocks) {
    dynamic_cast<nn::HookedModule&>(module_at(module, block))
        .unit_hook()
        .install(std::make_unique<BlockWatcher>(seen));
  }
}

}  // namespace automodel::distributed
