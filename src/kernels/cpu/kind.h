#pragma once

#include <string_view>

namespace automodel::kernels::cpu {

/// Instruction sets of a CPU; each kind includes the ones before it.
enum class CpuKind {
  kBaseline,    ///< "baseline": what every x86-64 CPU has
  kAvx2,        ///< "avx2", with FMA
  kAvx512,      ///< "avx512": F, VL, BW, DQ
  kAvx512Bf16,  ///< "avx512_bf16": dot products of bfloat16 vectors too
  kAmx,         ///< "amx": products of bfloat16 tiles, where the system lets programs have them
};

/// The best kind that this machine's CPU supports.
CpuKind best_kind();

/// "avx2", as AUTOMODEL_CPU and the enumerators' comments have it.
const char* name_of(CpuKind kind);

/// The kind that a run uses: the named one, or `best` when `name` is empty. Throws InputError for
/// an unknown name or a kind better than `best`.
CpuKind chosen_kind(std::string_view name, CpuKind best);

bool is_intel();

/// Whether AVX512_BF16's dot products multiply bfloat16 matrices faster than float32's
/// multiply-adds. AMD's cores do as many of them, each of twice the numbers; Intel's do one in
/// about four cycles.
bool has_fast_dot_products(CpuKind kind, bool is_intel);

/// chosen_kind() of the environment variable AUTOMODEL_CPU, which is read once.
CpuKind cpu_kind();

/// Whether AMX's tiles multiply float32 numbers too, as sums of bfloat16 ones; true until it is
/// changed, which no product may be under way for.
bool allows_float_parts();
void allow_float_parts(bool allows);

}  // namespace automodel::kernels::cpu
