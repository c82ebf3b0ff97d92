#!/usr/bin/env bash
# Breaks the code in small ways, one at a time, and demands that the tests named beside each go red.
# usage: scripts/mutate.sh [PATCH]...     (default: all of tests/mutations/*.patch)
#
# A patch begins with two lines before its diff:
#   # what it breaks, in a sentence
#   # tests: ROOM GTEST_FILTER
# It is applied to the last commit in a tree of its own (build/mutations), where the room's tests are built
# and run with that filter: before, when they must pass, and after, when at least one must fail. Prints a
# line a patch; exit status 1 when a patch does not apply, does not compile or turns nothing red.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
patches=("$@")
((${#patches[@]})) || patches=(tests/mutations/*.patch)
seconds=${AUTOMODEL_MUTATION_SECONDS:-300} # a mutated test that hangs is stopped, and counts as red
tree=$root/build/mutations/tree
build=$tree/build/release

scripts/setup.sh
if [[ -e $tree/.git ]]; then
  git -C "$tree" checkout -q --force --detach "$(git rev-parse HEAD)"
else
  mkdir -p build/mutations
  git worktree prune
  git worktree add -q --force --detach "$tree" HEAD
  [[ -n ${AUTOMODEL_DEPS:-} ]] || cp -al .deps "$tree/.deps"
fi
git -C "$tree" clean -fdq -e .deps -e build
mkdir -p "$build"
[[ -e $build/build.ninja ]] || (cd "$tree" && cmake --preset release >"$build/configure.log" 2>&1)

field() { sed -n "s/^# tests: *\([^ ]*\)  *\([^ ]*\).*$/\\$2/p" "$1" | head -n 1; }
build_tests() { # build_tests ROOM
  local targets=("test_$1")
  case $1 in recipes | cli) targets+=(automodel) ;; esac # their tests start the program
  cmake --build "$build" --target "${targets[@]}" >"$build/mutation.log" 2>&1
}
run_tests() { # run_tests ROOM FILTER LOG: 0 passed, 1 failed, 2 nothing ran
  local status=0
  (cd "$build" && AUTOMODEL_SOURCE_DIR=$tree AUTOMODEL_BINARY=$build/automodel GOMP_SPINCOUNT=1000 \
    timeout -k 10 "$seconds" "./test_$1" --gtest_filter="$2") </dev/null >"$3" 2>&1 || status=$?
  grep -Eq '^\[==========\] Running 0 tests' "$3" && return 2
  ((status == 0)) || return 1
}

failed=0
number=0
declare -A is_green
for patch in "${patches[@]}"; do
  number=$((number + 1))
  name=$(basename "$patch" .patch)
  room=$(field "$patch" 1)
  filter=$(field "$patch" 2)
  verdict=
  log=$build/$name.log
  if [[ -z $room || -z $filter ]]; then
    verdict="INVALID: no line '# tests: ROOM FILTER'"
  elif ! git -C "$tree" apply --check "$root/$patch" 2>"$log"; then
    verdict="INVALID: does not apply"
  fi
  if [[ -z $verdict && -z ${is_green["$room $filter"]:-} ]]; then
    if ! build_tests "$room"; then
      verdict="INVALID: the tree does not build"
    elif ! run_tests "$room" "$filter" "$log"; then
      verdict="INVALID: the tests do not pass before, or there are none"
    fi
    is_green["$room $filter"]=${verdict:-yes}
  elif [[ -z $verdict && ${is_green["$room $filter"]} != yes ]]; then
    verdict=${is_green["$room $filter"]}
  fi
  if [[ -z $verdict ]]; then
    git -C "$tree" apply "$root/$patch"
    if ! build_tests "$room"; then
      verdict="INVALID: does not compile"
    elif run_tests "$room" "$filter" "$log"; then
      verdict="NOT SEEN"
    else
      verdict="red"
    fi
    git -C "$tree" apply --reverse "$root/$patch"
  fi
  [[ $verdict == red ]] || failed=$((failed + 1))
  printf '%3d/%d %-9s %-44s %s %s\n' "$number" "${#patches[@]}" "$verdict" "$name" "$room" "$filter"
done
printf '%d mutations red, %d not\n' "$((number - failed))" "$failed"
((failed == 0))
