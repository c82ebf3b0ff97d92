#pragma once

#include <string_view>

namespace automodel::kernels::cpu {

/// What a CPU has instructions for, each kind also for the ones before it.
enum class CpuKind {
  kBaseline,    ///< "baseline": what every x86-64 CPU has
  kAvx2,        ///< "avx2", with FMA
  kAvx512,      ///< "avx512": F, VL, BW, DQ
  kAvx512Bf16,  ///< "avx512_bf16": products of bfloat16 matrices too; every CPU with AMX has it
};

/// The best kind that the CPU of this machine is.
CpuKind best_kind();

/// The kind that a run takes: the one named, or `best` when `name` is empty. InputError for a name
/// that is none, or of a kind better than `best`.
CpuKind chosen_kind(std::string_view name, CpuKind best);

/// chosen_kind() of the environment variable AUTOMODEL_CPU, asked once.
CpuKind cpu_kind();

}  // namespace automodel::kernels::cpu
