#!/usr/bin/env bash
# Sets up what is missing, builds and runs the tests; the last line is their count.
# usage: scripts/test.sh [FILTER]
#   FILTER: a room (core, config, ...) runs that room's tests, anything else the test cases whose
#   name contains it.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/release
filter=${1:-}

targets=()
ctest_arguments=()
if [[ -n $filter ]]; then
  if [[ -d $root/tests/$filter ]]; then
    ctest_arguments=(-R "^$filter(\$|_)")
    case $filter in
      recipes | cli) ;; # they start the program: everything is needed
      *) targets=("test_$filter") ;;
    esac
  else
    export GTEST_FILTER="*$filter*"
  fi
fi

"$root/scripts/build.sh" "${targets[@]}"

rm -rf "$build/test-results"
mkdir -p "$build/test-results"
echo "test: running${filter:+ $filter}" >&2
status=0
# A line as each part ends: passing ones short, failing ones with all they printed.
ctest --test-dir "$build" -j "$(nproc)" --timeout 900 --output-on-failure --no-tests=error \
  --output-junit "$build/test-results/ctest.xml" "${ctest_arguments[@]}" </dev/null 2>&1 |
  tee "$build/test-results/log.txt" | { grep --line-buffered -v '^ *Start ' || true; } || status=$?
python3 "$root/scripts/test_report.py" "$build/test-results" "$(<"$root/scripts/skip_limit")" ||
  status=1
exit "$status"
