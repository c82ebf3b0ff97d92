#include <immintrin.h>

#include <utility>

#include "kernels/cpu/loops.h"

namespace automodel::kernels::cpu {

namespace {
constexpr int64_t kLanes = 16;
constexpr int64_t kTileRows = 14;
constexpr int64_t kTileVectors = 2;
#include "kernels/cpu/loops_body.inc"
}  // namespace

const LoopTable& avx512_loops() {
  static constexpr LoopTable kTable = make_table("avx512");
  return kTable;
}

}  // namespace automodel::kernels::cpu
