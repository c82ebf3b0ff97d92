#!/usr/bin/env bash
# Breaks the code in small ways, one at a time, and demands that the tests named beside each go red.
# usage: scripts/mutate.sh [PATCH]...     (default: all of tests/mutations/*.patch)
# AUTOMODEL_MUTATION_TREE names the tree, for several to run beside each other.
#
# A patch begins with two lines before its diff:
#   # what it breaks, in a sentence
#   # tests: ROOM GTEST_FILTER
# It is applied to the last commit in a tree of its own below build/mutations, where the room's tests are built
# and run with that filter: before, when they must pass, and after, when at least one must fail. Prints a line
# a patch: red; hangs, which is as good (stopped after ten times what they took before, and half a minute);
# NOT SEEN, or INVALID. Exit status 1 when a patch does not apply, does not compile or turns nothing red.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
patches=("$@")
((${#patches[@]})) || patches=(tests/mutations/*.patch)
seconds=${AUTOMODEL_MUTATION_SECONDS:-300} # the most that tests may take
tree=$root/build/mutations/${AUTOMODEL_MUTATION_TREE:-tree}
build=$tree/build/dev

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
[[ -e $build/build.ninja ]] || (cd "$tree" && cmake --preset dev >"$build/configure.log" 2>&1)

field() { sed -n "s/^# tests: *\([^ ]*\)  *\([^ ]*\).*$/\\$2/p" "$1" | head -n 1; }
build_tests() { # build_tests ROOM
  local targets=("test_$1")
  case $1 in recipes | cli) targets+=(automodel) ;; esac # their tests start the program
  cmake --build "$build" --target "${targets[@]}" >"$build/mutation.log" 2>&1
}
run_tests() { # run_tests ROOM FILTER LOG SECONDS: 0 passed, 1 failed, 2 nothing ran, 3 ran past SECONDS
  local status=0
  (cd "$build" && AUTOMODEL_SOURCE_DIR=$tree AUTOMODEL_BINARY=$build/automodel GOMP_SPINCOUNT=1000 \
    timeout -k 10 "$4" "./test_$1" --gtest_filter="$2") </dev/null >"$3" 2>&1 || status=$?
  grep -Eq '^\[==========\] Running 0 tests' "$3" && return 2
  case $status in
    0) ;;
    124 | 137) return 3 ;;
    *) return 1 ;;
  esac
}

failed=0
number=0
tell() { # tell VERDICT NAME ROOM FILTER
  number=$((number + 1))
  case $1 in red | hangs) ;; *) failed=$((failed + 1)) ;; esac
  printf '%3d/%d %-9s %-44s %s %s\n' "$number" "${#patches[@]}" "$1" "$2" "$3" "$4"
}

mutate_room() { # mutate_room ROOM PATCH...
  local room=$1 patch name filter verdict log status began limit
  local -A green=() limits=()
  shift
  if ! build_tests "$room"; then
    cp "$build/mutation.log" "$build/$room.log"
    for patch in "$@"; do
      tell "INVALID: the tree does not build" "$(basename "$patch" .patch)" "$room" "$(field "$patch" 2)"
    done
    return 0
  fi
  # The unbroken code's tests first and at once: so a patch's removal is built together with the next patch.
  for patch in "$@"; do
    filter=$(field "$patch" 2)
    [[ -z ${green[$filter]:-} ]] || continue
    began=$SECONDS
    green[$filter]=no
    run_tests "$room" "$filter" "$build/$(basename "$patch" .patch).before.log" "$seconds" &&
      green[$filter]=yes
    limit=$((30 + 10 * (SECONDS - began)))
    limits[$filter]=$((limit < seconds ? limit : seconds))
  done
  for patch in "$@"; do
    name=$(basename "$patch" .patch)
    filter=$(field "$patch" 2)
    log=$build/$name.log
    if [[ ${green[$filter]} == no ]]; then
      verdict="INVALID: the tests do not pass before, or there are none"
    elif ! git -C "$tree" apply "$root/$patch" 2>"$log"; then
      verdict="INVALID: does not apply"
    else
      status=0
      if build_tests "$room"; then
        run_tests "$room" "$filter" "$log" "${limits[$filter]}" || status=$?
        case $status in
          0) verdict="NOT SEEN" ;;
          1) verdict=red ;;
          2) verdict="INVALID: no tests" ;;
          3) verdict=hangs ;;
        esac
      else
        cp "$build/mutation.log" "$log"
        verdict="INVALID: does not compile"
      fi
      git -C "$tree" apply --reverse "$root/$patch"
    fi
    tell "$verdict" "$name" "$room" "$filter"
  done
}

rooms=()
declare -A of_room
for patch in "${patches[@]}"; do
  room=$(field "$patch" 1)
  if [[ -z $room || -z $(field "$patch" 2) ]]; then
    tell "INVALID: no line '# tests: ROOM FILTER'" "$(basename "$patch" .patch)" "" ""
    continue
  fi
  [[ -n ${of_room[$room]:-} ]] || rooms+=("$room")
  of_room[$room]+="$patch"$'\n'
done
for room in "${rooms[@]}"; do
  mapfile -t of_this_room <<<"${of_room[$room]%$'\n'}"
  mutate_room "$room" "${of_this_room[@]}"
done
printf '%d mutations red, %d not\n' "$((number - failed))" "$failed"
((failed == 0))
