#!/usr/bin/env bash
# Installs the packages in bare systems of Debian, without compiler, Python or network, and trains there: the .deb by
# dpkg, the tar unpacked. From the package's file to the end of the first step may take a minute.
# usage: scripts/check_chroot.sh [--packages DIR] [SUITE]...     (default: build/packages, bookworm and trixie)
# Needs root, mmdebstrap (apt-get install mmdebstrap) and a mirror of Debian; the systems are made in build/chroot and kept.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
packages=$root/build/packages
if [[ ${1:-} == --packages ]]; then
  packages=$(realpath "$2")
  shift 2
fi
suites=("$@")
((${#suites[@]})) || suites=(bookworm trixie)
most_seconds=60
command -v mmdebstrap >/dev/null || {
  echo "check_chroot: mmdebstrap is missing: apt-get install mmdebstrap" >&2
  exit 1
}
# shellcheck disable=SC2016 # apt-get expands it
mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep -E '/debian/?$' | head -n 1)}
failures=0

in_system() { # in_system SYSTEM COMMAND: offline, with processes of its own and nothing of this environment
  unshare --net --pid --fork --mount-proc --root="$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin bash -euc "$2"
}

try() { # try SUITE WHAT SYSTEM INSTALL PROGRAM
  local start=$EPOCHREALTIME log=$3.log seconds
  if ! in_system "$3" "$4 && mkdir -p /tmp/first && cd /tmp/first && rm -rf mine.yaml checkpoints &&
      $5 cp tiny_llama_sft mine.yaml && $5 run mine.yaml --step_scheduler.max_steps=1" >"$log" 2>&1; then
    cat "$log" >&2
    echo "check_chroot: $1: $2 does not train; what was said is above" >&2
    failures=$((failures + 1))
    return
  fi
  seconds=$(awk "BEGIN {printf \"%.1f\", $EPOCHREALTIME - $start}")
  echo "check_chroot: $1: $2: from the file to the first step $seconds s" >&2
  if ! grep -q ' step 0 | .* loss ' "$log" || awk "BEGIN {exit !($seconds > $most_seconds)}"; then
    echo "check_chroot: $1: $2: no step, or not in $most_seconds s" >&2
    failures=$((failures + 1))
  fi
}

for suite in "${suites[@]}"; do
  base=$root/build/chroot/$suite
  if [[ ! -e $base/.complete ]]; then
    rm -rf "$base"
    mkdir -p "$(dirname "$base")"
    mmdebstrap --quiet --variant=minbase "$suite" "$base" "$mirror" >&2
    touch "$base/.complete"
  fi
  ! in_system "$base" "command -v python3 || command -v cc || command -v gcc" >/dev/null || {
    echo "check_chroot: $suite has a compiler or Python" >&2
    failures=$((failures + 1))
  }
  for kind in deb tar; do
    system=$base.$kind
    rm -rf "$system" && cp -a "$base" "$system"
    if [[ $kind == deb ]]; then
      cp "$packages"/*.deb "$system/tmp/automodel.deb"
      try "$suite" "the Debian package" "$system" "dpkg -i /tmp/automodel.deb" automodel
    else
      cp "$packages"/*.tar.gz "$system/tmp/automodel.tar.gz"
      try "$suite" "the tar" "$system" \
        "mkdir -p '/opt/a folder' && tar -xzf /tmp/automodel.tar.gz -C '/opt/a folder' --strip-components=1" \
        "'/opt/a folder/bin/automodel'"
    fi
    rm -rf "$system"
  done
done
exit $((failures > 0))
