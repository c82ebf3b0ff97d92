#include "kernels/cpu/loops.h"

namespace automodel::kernels::cpu {

namespace {
#include "kernels/cpu/loops_body.inc"
}  // namespace

const LoopTable& baseline_loops() {
  static constexpr LoopTable kTable = make_table("baseline");
  return kTable;
}

}  // namespace automodel::kernels::cpu
