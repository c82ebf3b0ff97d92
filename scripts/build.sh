#!/usr/bin/env bash
# Sets up what is missing, configures build/release once and builds the targets (all by default).
# usage: scripts/build.sh [TARGET]...
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/release

"$root/scripts/setup.sh"

# LibTorch's headers take up to 1.5 GB a compiler: fewer jobs than cores on a small machine.
memory_gb=$(awk '/^MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
jobs=$(nproc)
((jobs * 3 > memory_gb * 2)) && jobs=$((memory_gb * 2 / 3))
((jobs > 0)) || jobs=1

mkdir -p "$build"
exec 9>"$build/.lock"
flock 9 # two starts at once: the second finds the work done
if [[ ! -e $build/build.ninja ]]; then
  echo "build: configuring $build" >&2
  (cd "$root" && cmake --preset release >"$build/configure.log" 2>&1) || {
    tail -n 20 "$build/configure.log" >&2
    exit 1
  }
fi
targets=()
if (($#)); then targets=(--target "$@"); fi
echo "build: compiling ${*:-everything} with $jobs jobs (the first time takes minutes)" >&2
: >"$build/.building"
cmake --build "$build" -j "$jobs" "${targets[@]}" >&2
# scripts/automodel compares the sources with this stamp.
if ((!$#)) || [[ " $* " == *" automodel "* ]]; then mv "$build/.building" "$build/.automodel-built"; fi
