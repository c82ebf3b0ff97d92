#include "kernels/cpu/loops.h"

namespace automodel::kernels::cpu {

namespace {

const LoopTable& choose() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")) {
    return avx512_loops();
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2_loops();
  return baseline_loops();
}

}  // namespace

const LoopTable& loops() {
  static const LoopTable& table = choose();
  return table;
}

}  // namespace automodel::kernels::cpu
