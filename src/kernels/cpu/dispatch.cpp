#include <array>
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

constexpr std::array<std::pair<const char*, CpuKind>, 4> kNames = {
    {{"baseline", CpuKind::kBaseline},
     {"avx2", CpuKind::kAvx2},
     {"avx512", CpuKind::kAvx512},
     {"avx512_bf16", CpuKind::kAvx512Bf16}}};

const LoopTable& table_of(CpuKind kind) {
  switch (kind) {
    case CpuKind::kBaseline:
      return baseline_loops();
    case CpuKind::kAvx2:
      return avx2_loops();
    case CpuKind::kAvx512:
    case CpuKind::kAvx512Bf16:
      return avx512_loops();
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
  return __builtin_cpu_supports("avx512bf16") ? CpuKind::kAvx512Bf16 : CpuKind::kAvx512;
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

const LoopTable& loops() {
  static const LoopTable& table = table_of(cpu_kind());
  return table;
}

}  // namespace automodel::kernels::cpu
