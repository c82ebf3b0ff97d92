#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "comm/process_group.h"

namespace automodel::comm {

/// c10d's name of an operation.
inline c10d::ReduceOp to_c10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::kAvg:
      return c10d::ReduceOp::AVG;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
  }
  AM_CHECK(false);
}

}  // namespace automodel::comm
