#include <immintrin.h>

#include <utility>

#include "kernels/cpu/loops.h"

namespace automodel::kernels::cpu {

namespace {
constexpr int64_t kLanes = 4;
constexpr int64_t kTileRows = 4;
constexpr int64_t kTileVectors = 2;
#include "kernels/cpu/loops_body.inc"
}  // namespace

const LoopTable& baseline_loops() {
  static constexpr LoopTable kTable = make_table("baseline");
  return kTable;
}

}  // namespace automodel::kernels::cpu
