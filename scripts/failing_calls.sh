#!/usr/bin/env bash
# Lets every call with which a run changes a file fail, fill the disk, end the process in it or
# before it, and send SIGTERM; lets every read fail (One/Reads); then continues the run. Prints how
# many runs were tried and lost. PARTS of the calls (default: one a core) are tried at a time; what
# they say is printed as it comes.
# usage: scripts/failing_calls.sh [One|Ddp2|Fsdp2|Hsdp4|One/Reads|Ddp2/Reads|Fsdp2/Reads]...
#   KINDS=each scripts/failing_calls.sh Hsdp4   one kind of fault at each call, in turn
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${BUILD:-$root/build/release}
parts=${PARTS:-$(nproc)}
(($#)) || set -- One Ddp2 Fsdp2 Hsdp4 One/Reads Ddp2/Reads Fsdp2/Reads
export AUTOMODEL_SOURCE_DIR=$root AUTOMODEL_BINARY=$build/automodel GOMP_SPINCOUNT=1000
# Nothing is synced to a real disk.
if [[ -z ${TMPDIR:-} && -w /dev/shm ]]; then export TMPDIR=/dev/shm; fi
status=0
for what in "$@"; do
  test=FailingCallsTest.LoseNothing
  if [[ $what == */Reads ]]; then test=FailingReadsTest.AreToldAndLoseNothing; fi
  running=()
  for ((part = 1; part <= parts; ++part)); do
    AUTOMODEL_FAILING_CALLS=${KINDS:-all}:$part/$parts "${TESTS:-$build/test_recipes}" \
      --gtest_brief=1 --gtest_filter="Spreads/$test/${what%/Reads}" &
    running+=($!)
  done
  for process in "${running[@]}"; do wait "$process" || status=1; done
done
exit $status
