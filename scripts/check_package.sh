#!/usr/bin/env bash
# Makes the packages of a release build and holds them against what they promise: they need no newer glibc and
# libstdc++ than Debian 12's, every other library lies in them, they run from any folder with an empty environment, and
# the wheel says which torch it wants.
# usage: scripts/check_package.sh [BUILD | --packages DIR]     (default: those of build/release, as it is)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=${AUTOMODEL_DEPS:-$root/.deps}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
  echo "check_package: $*" >&2
  failures=$((failures + 1))
}

declare -A highest_allowed=([GLIBC]=2.36 [GLIBCXX]=3.4.30 [CXXABI]=1.3.13) # Debian 12's
# What Debian 12's libc6, libgcc-s1 and libstdc++6 hold.
from_system='^(ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libutil|libresolv|libgcc_s|libstdc\+\+)\.so\.[0-9]+$'

elf_files() { # elf_files FOLDER: one a line
  find "$1" -type f -print0 | while IFS= read -r -d '' file; do
    [[ $(head -c 4 "$file" | tr -d '\0') != $'\177ELF' ]] || printf '%s\n' "$file"
  done
}

check_symbols() { # check_symbols WHAT FILE...
  local what=$1 name found
  shift
  for name in "${!highest_allowed[@]}"; do
    found=$(readelf --version-info --wide "$@" | grep -oE "\b${name}_[0-9.]+" | sed "s/^${name}_//" |
      sort -uV | tail -n 1) || true
    echo "check_package: $what needs ${name}_${found:-none}" >&2
    [[ $(printf '%s\n' "$found" "${highest_allowed[$name]}" | sort -V | tail -n 1) == "${highest_allowed[$name]}" ]] ||
      fail "$what needs ${name}_$found; Debian 12 has ${highest_allowed[$name]}"
  done
}

# Search paths lead from the file to places in the tree; no entry is empty, which is the current folder.
check_search_path() { # check_search_path TREE FILE
  local tree=$1 file=$2 path entry place
  path=$(readelf --dynamic --wide "$file" | sed -nE 's/.*\((RPATH|RUNPATH)\).*\[(.*)\]$/\2/p')
  [[ -n $path ]] || return 0
  while IFS= read -r -d : entry; do
    place=${entry/#\$ORIGIN/$(dirname "$file")}
    place=$(realpath -m "${place:-.}")
    [[ $entry == "\$ORIGIN"* && $place == "$tree"/* ]] ||
      fail "${file#"$tree"/}: its search path has the entry '$entry': [$path]"
  done <<<"$path:"
}

# A part of a function that is empty hides the frame of the function behind it, and an exception that passes there ends
# the program.
check_frames() { # check_frames FILE
  local empty
  empty=$(readelf --debug-dump=frames --wide "$1" 2>/dev/null | grep -cE ' pc=([0-9a-f]+)\.\.\1$') || true
  ((empty == 0)) || fail "$(basename "$1") has $empty empty parts of functions"
}

check_tree() { # check_tree WHAT TREE [LIBRARY]...: what else it may need, by name
  local what=$1 tree=$2 files file needed
  shift 2
  mapfile -t files < <(elf_files "$tree")
  ((${#files[@]} > 3)) || fail "$what holds ${#files[@]} programs and libraries"
  check_symbols "$what" "${files[@]}"
  for file in "${files[@]}"; do
    check_search_path "$tree" "$file"
    [[ $file != */automodel-main ]] || check_frames "$file"
    while read -r needed; do
      [[ $needed =~ $from_system || " $* " == *" $needed "* || -n $(find "$tree" -name "$needed" -print -quit) ]] ||
        fail "${file#"$tree"/} needs $needed, which does not come with $what"
    done < <(readelf --dynamic --wide "$file" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]$/\1/p')
    ! readelf --dynamic --wide "$file" | grep -F "$root" >&2 || fail "${file#"$tree"/} names this machine's folders"
  done
}

# The program has its recipes, and trains without network, home or variables.
check_runs() { # check_runs WHAT COMMAND...
  local what=$1 place=$work/elsewhere log=$work/run.log start=$EPOCHREALTIME
  shift
  rm -rf "$place" && mkdir "$place"
  (
    cd "$place"
    "$@" --version && "$@" ls && "$@" cp tiny_llama_sft mine.yaml &&
      "$@" run mine.yaml --step_scheduler.max_steps=1 --checkpoint.checkpoint_dir=out
  ) >"$log" 2>&1 || {
    cat "$log" >&2
    fail "$what does not run; what it said is above"
    return
  }
  for wanted in '^automodel [0-9.]+ ' '^quickstart  ' ' step 0 \| .* loss [0-9.]+ '; do
    grep -Eq "$wanted" "$log" || fail "$what said nothing like '$wanted' while it ran"
  done
  echo "check_package: $what ran in $(awk "BEGIN {printf \"%.1f\", $EPOCHREALTIME - $start}") s" >&2
}

check_tar() {
  local at="$work/a folder"
  mkdir "$at"
  tar -xzf "$work"/packages/*.tar.gz -C "$at" --strip-components=1
  check_tree "the tar" "$at"
  check_runs "the tar" env -i "$at/bin/automodel"
}

check_deb() {
  local deb at=$work/deb depends file
  deb=$(echo "$work"/packages/*.deb)
  depends=$(dpkg-deb --field "$deb" Depends)
  echo "check_package: the Debian package depends on $depends" >&2
  ! tr ',' '\n' <<<"$depends" | grep -qvE '^ *(libc6|libgcc-s1|libstdc\+\+6) ' ||
    fail "the Debian package depends on more than Debian 12 and 13 have by the same name: $depends"
  dpkg-deb --extract "$deb" "$at"
  for file in man/man1/automodel.1.gz bash-completion/completions/automodel zsh/vendor-completions/_automodel \
    fish/vendor_completions.d/automodel.fish doc/automodel/copyright \
    doc/automodel/changelog.Debian.gz doc/automodel/licences/libcurl4; do
    [[ -s $at/usr/share/$file ]] || fail "the Debian package lacks /usr/share/$file"
  done
  check_runs "the Debian package" env -i "$at/usr/bin/automodel"
}

# A folder like a virtual environment's, with LibTorch under the name of a torch package.
install_wheel() { # install_wheel SITE VERSION
  mkdir "$1"
  PIP_ROOT_USER_ACTION=ignore python3 -m pip --quiet --disable-pip-version-check install --no-index --no-deps \
    --target "$1" "$work"/packages/*.whl
  [[ -n $2 ]] || return 0
  mkdir "$1/torch-$2.dist-info"
  printf 'Metadata-Version: 2.1\nName: torch\nVersion: %s\n' "$2" >"$1/torch-$2.dist-info/METADATA"
  ln -s "$deps/libtorch-2.11.0/torch" "$deps/libtorch-2.11.0/nvidia" "$1"
}

expect_refusal() { # expect_refusal SITE TEXT
  local said status=0
  said=$(PYTHONPATH=$1 "$1/bin/automodel" --version 2>&1) || status=$?
  [[ $status == 4 && $said == "$2"* ]] || fail "the wheel says (status $status, 4 wanted): $said; wanted: $2..."
}

check_wheel() {
  local with=$work/with without=$work/without old=$work/old
  install_wheel "$without" ""
  check_tree "the wheel" "$without/automodel" libtorch_cpu.so libc10.so libgomp.so.1
  expect_refusal "$without" "automodel: no torch beside it, and this build needs torch 2.11.0; install it with: "
  install_wheel "$old" 2.10.1
  expect_refusal "$old" \
    "automodel: torch 2.10.1 is installed in $old, but this build needs torch 2.11.0; install it with: "
  install_wheel "$with" 2.11.0
  check_runs "the wheel" env -i PYTHONPATH="$with" "$with/bin/automodel"
}

if [[ ${1:-} == --packages ]]; then
  ln -s "$(realpath "${2:?--packages needs a directory}")" "$work/packages"
else
  "$root/scripts/package.sh" --build "${1:-$root/build/release}" --out "$work/packages" tar deb wheel
fi
check_tar
check_deb
check_wheel
if ((failures)); then
  echo "check_package: $failures failures" >&2
  exit 1
fi
echo "check_package: the packages keep what they promise" >&2
