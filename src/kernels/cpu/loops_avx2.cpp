#include "kernels/cpu/loops.h"

namespace automodel::kernels::cpu {

namespace {
#include "kernels/cpu/loops_body.inc"
}  // namespace

const LoopTable& avx2_loops() {
  static constexpr LoopTable kTable = make_table("avx2");
  return kTable;
}

}  // namespace automodel::kernels::cpu
