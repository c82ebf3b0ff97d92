#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/groups/process_group.h"

namespace automodel::comm {

/// Sets out[i] to the reduction of sources[0][i], sources[1][i], ... in this order, for `count`
/// elements. `out` may be one of the sources. bfloat16 is summed in float and rounded once; kAvg of
/// integers truncates.
void reduce_sources(c10::ScalarType dtype, ReduceOp op, std::byte* out,
                    std::span<const std::byte* const> sources, int64_t count);

}  // namespace automodel::comm
