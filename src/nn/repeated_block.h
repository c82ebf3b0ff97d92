#pragma once

namespace automodel::nn {

/// A block (ParallelPlan::blocks) that one loss runs more than once, as over a text and over a
/// canvas; what `distributed` looks for in a model's blocks.
class RepeatedBlock {
 public:
  virtual ~RepeatedBlock() = default;
};

}  // namespace automodel::nn
