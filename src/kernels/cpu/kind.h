#pragma once

#include <string_view>

namespace automodel::kernels::cpu {

/// What a CPU has instructions for, each kind also for the ones before it.
enum class CpuKind {
  kBaseline,    ///< "baseline": what every x86-64 CPU has
  kAvx2,        ///< "avx2", with FMA
  kAvx512,      ///< "avx512": F, VL, BW, DQ
  kAvx512Bf16,  ///< "avx512_bf16": dot products of bfloat16 vectors too
  kAmx,         ///< "amx": products of bfloat16 tiles, where the system lets programs have them
};

/// The best kind that the CPU of this machine is.
CpuKind best_kind();

/// The kind that a run takes: the one named, or `best` when `name` is empty. InputError for a name
/// that is none, or of a kind better than `best`.
CpuKind chosen_kind(std::string_view name, CpuKind best);

bool is_intel();

/// Whether bfloat16 matrices are multiplied faster by the CPU's own instructions for them than in
/// float32. With AMX they are. Of AVX512_BF16's dot product AMD's cores do one a cycle, twice the
/// numbers of a float32 multiply-add; Intel's do one in four cycles or so, half of them.
bool has_fast_bfloat16_products(CpuKind kind, bool is_intel);

/// chosen_kind() of the environment variable AUTOMODEL_CPU, asked once.
CpuKind cpu_kind();

}  // namespace automodel::kernels::cpu
