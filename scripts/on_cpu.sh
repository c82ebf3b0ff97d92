#!/usr/bin/env bash
# Runs a command as on a CPU of a lesser kind: our loops, LibTorch's, oneDNN's and MKL's all take
# that kind's instructions.
# usage: scripts/on_cpu.sh baseline|avx2|avx512|avx512_bf16|amx COMMAND...
#   scripts/on_cpu.sh avx2 scripts/test.sh kernels
set -euo pipefail

case ${1:-} in
  baseline) libraries=(default SSE41 SSE4_2) ;;
  avx2) libraries=(avx2 AVX2 AVX2) ;;
  avx512) libraries=(avx512 AVX512_CORE AVX512) ;;
  avx512_bf16) libraries=(avx512 AVX512_CORE_BF16 AVX512) ;;
  amx) libraries=(avx512 AVX512_CORE_AMX AVX512) ;;
  *)
    sed -n '2,5s/^# //p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
export AUTOMODEL_CPU=$1 ATEN_CPU_CAPABILITY=${libraries[0]} ONEDNN_MAX_CPU_ISA=${libraries[1]} \
  MKL_ENABLE_INSTRUCTIONS=${libraries[2]}
shift
exec "$@"
