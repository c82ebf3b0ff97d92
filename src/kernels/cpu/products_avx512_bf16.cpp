#include <immintrin.h>

#include <utility>

#include "kernels/cpu/loops.h"

namespace automodel::kernels::cpu {

namespace {
constexpr int64_t kLanes = 16;
constexpr int64_t kTileRows = 14;
constexpr int64_t kTileVectors = 2;
#include "kernels/cpu/storage_body.inc"

#include "kernels/cpu/product_body.inc"
}  // namespace

const LoopTable& avx512_bf16_loops() {
  static const LoopTable table = [] {
    LoopTable all = avx512_loops();
    all.isa = "avx512_bf16";
    all.multiply = multiply;
    return all;
  }();
  return table;
}

}  // namespace automodel::kernels::cpu
