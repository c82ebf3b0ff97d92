#!/usr/bin/env bash
# Builds the fuzzers and runs each for some seconds, starting from the kept inputs.
# usage: scripts/fuzz.sh [SECONDS] [NAME]...     (default: 60 seconds, all of fuzz/*_fuzz.cpp)
# FUZZ_SEED=NUMBER makes a fuzzer try the same inputs in the same order each time; FUZZ_RUNS=NUMBER ends it
# after that many, so that a faster machine tries no others.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
case ${1:-} in -h | --help)
  sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
  exit 0
  ;;
esac
seconds=${1:-60}
[[ $seconds =~ ^[0-9]+$ ]] || {
  echo "fuzz: '$seconds' is no number of seconds; --help says what is meant" >&2
  exit 2
}
(($#)) && shift
names=("$@")
if ((!${#names[@]})); then
  for source in fuzz/*_fuzz.cpp; do
    [[ -e $source ]] || continue
    name=${source##*/}
    names+=("${name%_fuzz.cpp}")
  done
fi
if ((!${#names[@]})); then
  echo "fuzz: there are no fuzzers" >&2
  exit 0
fi

scripts/setup.sh --dev
mkdir -p build/fuzz
cmake --preset fuzz >build/fuzz/configure.log 2>&1 || {
  tail -n 20 build/fuzz/configure.log >&2
  exit 1
}
echo "fuzz: building ${names[*]}" >&2
cmake --build build/fuzz --target "${names[@]/#/fuzz_}" >build/fuzz/build.log 2>&1 || {
  grep -iE -A8 'error|FAILED' build/fuzz/build.log | head -n 60 >&2
  exit 1
}

fuzz_one() { # fuzz_one SECONDS NAME: new inputs stay in build/, a crash is kept and printed
  local name=$2 kept=fuzz/corpus/$2 work=build/fuzz/work/$2 folders=()
  # What earlier runs found would change the order of a seeded one.
  [[ -n ${FUZZ_SEED:-} ]] && rm -rf "$work/new"
  mkdir -p "$work/new" "$work/crashes"
  folders=("$work/new")
  [[ -d $kept ]] && folders+=("$kept")
  # Leaks are reported when the fuzzer ends; LibTorch's own one-time allocations are no leaks.
  if ! ASAN_OPTIONS=allocator_may_return_null=1:detect_container_overflow=0 \
    "build/fuzz/fuzz_$name" -seed="${FUZZ_SEED:-0}" -runs="${FUZZ_RUNS:--1}" -max_total_time="$1" -timeout=10 -rss_limit_mb=4096 -verbosity=0 \
    -print_final_stats=1 -artifact_prefix="$work/crashes/" "${folders[@]}" \
    </dev/null >"$work/log.txt" 2>&1; then
    tail -n 60 "$work/log.txt"
    echo "fuzz: $name failed; the input is in $work/crashes" >&2
    return 1
  fi
  echo "fuzz: $name ran $(awk '/number_of_executed_units/ {print $2}' "$work/log.txt") inputs, nothing found" >&2
}
export -f fuzz_one
printf '%s\n' "${names[@]}" | xargs -P "$(nproc)" -I '{}' bash -c 'fuzz_one "$@"' fuzz "$seconds" '{}'
