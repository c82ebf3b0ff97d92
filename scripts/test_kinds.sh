#!/usr/bin/env bash
# Runs tests as machines of other kinds run them: with a lesser CPU's instructions, on one core, and beside a busy
# loop on every core. No test may depend on the kind, the speed or the load of its machine.
# usage: scripts/test_kinds.sh [FILTER]      (as of scripts/test.sh)
# Prints a line a kind, and of one that fails what failed; status 1 when one did.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
status=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

try() { # try NAME COMMAND...
  local name=$1 start=$SECONDS
  shift
  if "$@" >"$log" 2>&1; then
    echo "test_kinds: $name: $(tail -n 1 "$log") in $((SECONDS - start)) s"
  else
    grep -E 'FAILED|Failure|not run' "$log" | sort -u | head -n 40
    echo "test_kinds: $name: $(tail -n 1 "$log")"
    status=1
  fi
}

# shellcheck disable=SC2317 # try calls it
beside_busy_loops() {
  local loops=() core result=0
  for ((core = 0; core < $(nproc); ++core)); do
    (while :; do :; done) &
    loops+=($!)
  done
  "$@" || result=$?
  kill "${loops[@]}"
  return "$result"
}

for kind in baseline avx2 avx512; do
  case $kind in
    avx2) grep -qw avx2 /proc/cpuinfo || continue ;;
    avx512) grep -qw avx512f /proc/cpuinfo || continue ;;
  esac
  try "as a CPU of kind $kind" scripts/on_cpu.sh "$kind" scripts/test.sh "$@"
done
try "on one core" taskset -c 0 scripts/test.sh "$@"
try "beside a busy loop on each core" beside_busy_loops scripts/test.sh "$@"
exit $status
