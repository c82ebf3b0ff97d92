#!/usr/bin/env bash
# Builds rooms' tests with a sanitizer for our own code and runs them.
# usage: scripts/sanitize.sh asan|tsan SECONDS ROOM...
#   asan: addresses and undefined behaviour; tsan: data races (LibTorch itself is not instrumented).
# SECONDS bound the build and the tests together: what there was no time for is said, and is no failure.
# Exit status 1 when anything was found.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
kind=${1:?asan or tsan}
seconds=${2:?seconds}
shift 2
build=$root/build/$kind

mkdir -p "$build"
[[ -e $build/build.ninja ]] || cmake --preset "$kind" >"$build/configure.log" 2>&1 || {
  tail -n 20 "$build/configure.log" >&2
  exit 1
}
echo "sanitize: building $* with $kind" >&2
end=$(($(date +%s) + seconds))
built=0
targets=("${@/#/test_}")
case " $* " in *" recipes "* | *" cli "*) targets+=(automodel) ;; esac # their tests start the program
timeout "$seconds" cmake --build "$build" --target "${targets[@]}" >"$build/build.log" 2>&1 || built=$?
if ((built == 124)); then
  echo "sanitize: no time to build with $kind: $(grep -oE '^\[[0-9]+/[0-9]+\]' "$build/build.log" | tail -n 1) steps done" >&2
  exit 0
elif ((built != 0)); then
  grep -E -A5 'error|FAILED' "$build/build.log" | head -n 60 >&2
  exit 1
fi

cores=$(nproc) # before OMP_NUM_THREADS is set, which nproc obeys
export OMP_NUM_THREADS=1 GOMP_SPINCOUNT=1000
export AUTOMODEL_SOURCE_DIR=$root AUTOMODEL_BINARY=$build/automodel
# LibTorch's one-time allocations are no leaks, and its containers are not annotated; a test's library that
# fails calls is loaded before the sanitizer's.
export ASAN_OPTIONS=detect_leaks=0:detect_container_overflow=0:allocator_may_return_null=1:verify_asan_link_order=0
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=ignore_noninstrumented_modules=1:halt_on_error=0

work=$build/sanitize
rm -rf "$work"
mkdir -p "$work"
# The examples are projects of their own, which a library built with a sanitizer does not link to.
export AUTOMODEL_SANITIZE_FILTER=${AUTOMODEL_SANITIZE_FILTER:-*-ExampleTest.*}
run_part() { # run_part ROOM SHARD COUNT
  local name=$1_$2 status=0
  if (($(date +%s) > end)); then
    echo "$name" >>"$work/left_out"
    return 0
  fi
  (cd "$build" && GTEST_TOTAL_SHARDS=$3 GTEST_SHARD_INDEX=$2 timeout -k 10 600 "./test_$1" \
    --gtest_brief=1 --gtest_filter="$AUTOMODEL_SANITIZE_FILTER") \
    </dev/null >"$work/$name.txt" 2>&1 || status=$?
  if ((status != 0)); then
    echo "$name" >>"$work/failed"
    { grep -m 1 -A 30 -E 'Sanitizer|runtime error|Failure$' "$work/$name.txt" || tail -n 30 "$work/$name.txt"; } |
      cut -c 1-200
  fi
}
export -f run_part
export build work end
# Another commit begins with other parts, so that where time is short none is always left out.
parts=24
first=$((16#$(git rev-parse --short=4 HEAD 2>/dev/null | head -c 4 || echo 0) % parts))
for room in "$@"; do
  for ((part = 0; part < parts; part++)); do echo "$room $(((first + part) % parts)) $parts"; done
done | xargs -P "$cores" -L 1 bash -c 'run_part "$@"' part
num_tests=$(cat "$work"/*.txt | awk '/^\[==========\] [0-9]+ tests? from/ {n += $2} END {print n + 0}')
[[ -e $work/left_out ]] && echo "sanitize: no time for $(tr '\n' ' ' <"$work/left_out")" >&2
if [[ -e $work/failed ]]; then
  echo "sanitize: $kind found something in $(tr '\n' ' ' <"$work/failed")" >&2
  exit 1
fi
echo "sanitize: $num_tests tests of $* with $kind, nothing found" >&2
