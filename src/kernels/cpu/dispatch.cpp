#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "kernels/cpu/kind.h"
#include "kernels/cpu/loops.h"

namespace automodel::kernels::cpu {

namespace {

constexpr std::array<std::pair<const char*, CpuKind>, 5> kNames = {
    {{"baseline", CpuKind::kBaseline},
     {"avx2", CpuKind::kAvx2},
     {"avx512", CpuKind::kAvx512},
     {"avx512_bf16", CpuKind::kAvx512Bf16},
     {"amx", CpuKind::kAmx}}};

/// Whether the CPU has AMX's tiles and their bfloat16 products, and the system gives this process
/// their registers, for which it is asked here, once for all threads.
bool has_bfloat16_tiles() {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr uint32_t kBfloat16 = uint32_t{1} << 22;
  constexpr uint32_t kTiles = uint32_t{1} << 24;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kBfloat16) == 0 || (edx & kTiles) == 0) return false;
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

const LoopTable& table_of(CpuKind kind) {
  switch (kind) {
    case CpuKind::kBaseline:
      return baseline_loops();
    case CpuKind::kAvx2:
      return avx2_loops();
    case CpuKind::kAvx512:
    case CpuKind::kAvx512Bf16:
      return has_fast_dot_products(kind, is_intel()) ? avx512_bf16_loops() : avx512_loops();
    case CpuKind::kAmx:
      return amx_loops();
  }
  AM_CHECK(false);
}

}  // namespace

CpuKind best_kind() {
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (!has_avx2) return CpuKind::kBaseline;
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
  if (!has_avx512) return CpuKind::kAvx2;
  if (!__builtin_cpu_supports("avx512bf16")) return CpuKind::kAvx512;
  return has_bfloat16_tiles() ? CpuKind::kAmx : CpuKind::kAvx512Bf16;
}

const char* name_of(CpuKind kind) {
  return kNames.at(static_cast<size_t>(kind)).first;
}

bool is_intel() {
  __builtin_cpu_init();
  return __builtin_cpu_is("intel") != 0;
}

bool has_fast_dot_products(CpuKind kind, bool is_intel) {
  return kind >= CpuKind::kAvx512Bf16 && !is_intel;
}

CpuKind chosen_kind(std::string_view name, CpuKind best) {
  if (name.empty()) return best;
  std::vector<std::string> possible;
  for (const auto& [text, kind] : kNames) {
    if (kind > best) break;
    if (name == text) return kind;
    possible.emplace_back(text);
  }
  throw InputError(cat("AUTOMODEL_CPU is '", name, "'; this CPU can be: ", join(possible, ", ")));
}

CpuKind cpu_kind() {
  static const CpuKind kind = [] {
    const char* name = std::getenv("AUTOMODEL_CPU");
    return chosen_kind(name == nullptr ? "" : name, best_kind());
  }();
  return kind;
}

namespace {
std::atomic<bool> are_float_parts_allowed = true;
}  // namespace

bool allows_float_parts() {
  return are_float_parts_allowed.load(std::memory_order_relaxed);
}

void allow_float_parts(bool allows) {
  are_float_parts_allowed = allows;
}

int64_t vector_product_scratch(const ProductPart& part) {
  const int64_t columns = std::min(kProductColumns, part.column_end - part.column_begin);
  const int64_t padded = (columns + kMostTileColumns - 1) / kMostTileColumns * kMostTileColumns;
  const int64_t panels = std::min(kProductDepth, part.depth) * padded;
  const int64_t sums = std::min(kRoundedRows, part.row_end - part.row_begin) * columns;
  return part.is_c_bfloat16 && part.depth > kProductDepth ? panels + sums : panels;
}

const LoopTable& loops() {
  static const LoopTable& table = table_of(cpu_kind());
  return table;
}

}  // namespace automodel::kernels::cpu
