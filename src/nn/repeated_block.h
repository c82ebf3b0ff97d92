#pragma once

namespace automodel::nn {

/// A block (ParallelPlan::blocks) that one loss runs more than once, e.g. over a text and over a
/// canvas; `distributed` looks for this interface.
class RepeatedBlock {
 public:
  virtual ~RepeatedBlock() = default;
};

}  // namespace automodel::nn
