#!/usr/bin/env bash
# Lets every call with which a run changes a file fail, fill the disk, end the process in it or
# before it, and send SIGTERM; then continues the run. Prints how many runs were tried and lost.
# usage: scripts/failing_calls.sh [One|Ddp2|Fsdp2|Hsdp4]...   (default: all; hours)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${BUILD:-$root/build/release}
(($#)) || set -- One Ddp2 Fsdp2 Hsdp4
export AUTOMODEL_SOURCE_DIR=$root AUTOMODEL_BINARY=$build/automodel GOMP_SPINCOUNT=1000
export AUTOMODEL_FAILING_CALLS=all
for spread in "$@"; do
  "$build/test_recipes" --gtest_brief=1 --gtest_filter="Spreads/FailingCallsTest.LoseNothing/$spread"
done
