#!/usr/bin/env bash
# Installs what automodel is built from: Debian packages, and LibTorch and Arrow out of wheels pinned
# by hash.
# Does nothing when everything is there; an interrupted run leaves nothing half-done.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/setup.sh [--prefix DIR] [--check] [--dev] [--cuda]

  --prefix DIR  put LibTorch and Arrow below DIR instead of .deps (tell the other scripts and CMake with
                AUTOMODEL_DEPS=DIR in the environment)
  --check       only say what is missing; exit status 1 when anything is
  --dev         also clang 14, clang-format, clang-tidy, shellcheck (scripts/check.sh, fuzz.sh) and dpkg-dev (package.sh)
  --cuda        also the CUDA libraries (2.9 GB on disk) for -DAUTOMODEL_CUDA=ON
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=${AUTOMODEL_DEPS:-$root/.deps}
check_only=false
with_dev=false
with_cuda=false
while (($#)); do
  case $1 in
    --prefix)
      deps=${2:?--prefix needs a directory}
      shift
      ;;
    --check) check_only=true ;;
    --dev) with_dev=true ;;
    --cuda) with_cuda=true ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      usage >&2
      exit 2
      ;;
  esac
  shift
done

say() { echo "setup: $*" >&2; }
fail() {
  say "$*"
  exit 1
}

libtorch=$deps/libtorch-2.11.0
arrow=$deps/arrow-26.0.1
arrow_list=$root/scripts/wheels_arrow.txt
wheel_lists=("$root/scripts/wheels_cpu.txt")
$with_cuda && wheel_lists+=("$root/scripts/wheels_cuda.txt")

# --- Debian packages ---------------------------------------------------------------------------

# Tools may come from anywhere on PATH (command:package); libraries are Debian's.
tools=(g++:g++ cmake:cmake ninja:ninja-build pkg-config:pkg-config ccache:ccache ld.lld:lld git:git
  patchelf:patchelf protoc:protobuf-compiler)
libraries=(libyaml-cpp-dev libspdlog-dev libcli11-dev nlohmann-json3-dev rapidjson-dev libpcre2-dev
  libutf8proc-dev libxxhash-dev libcurl4-openssl-dev libprotobuf-dev libssl-dev
  libmicrohttpd-dev prometheus-cpp-dev libgtest-dev libgmock-dev ca-certificates)
dev_tools=(clang++-14:clang-14 clang-format-14:clang-format-14 clang-tidy-14:clang-tidy-14
  shellcheck:shellcheck dpkg-shlibdeps:dpkg-dev)
dev_libraries=(libclang-rt-14-dev)

is_installed() { [[ $(dpkg-query -W -f '${Status}' "$1" 2>/dev/null) == *"ok installed" ]]; }

missing_packages() {
  local wanted_tools=("${tools[@]}") wanted_libraries=("${libraries[@]}") entry
  if $with_dev; then
    wanted_tools+=("${dev_tools[@]}")
    wanted_libraries+=("${dev_libraries[@]}")
  fi
  for entry in "${wanted_tools[@]}"; do
    command -v "${entry%%:*}" >/dev/null || echo "${entry##*:}"
  done
  for entry in "${wanted_libraries[@]}"; do
    is_installed "$entry" || echo "$entry"
  done
  # The tests' and checks' scripts need python3, fetching the wheels needs its pip.
  command -v python3 >/dev/null || echo python3
  python3 -c 'import jsonschema, yaml' 2>/dev/null || printf '%s\n' python3-jsonschema python3-yaml
  wheels_are_complete || python3 -m pip --version >/dev/null 2>&1 || echo python3-pip
}

install_packages() {
  local packages=("$@") runner=() log=$deps/apt.log
  if ((EUID != 0)); then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      runner=(sudo -n)
    else
      say "these Debian packages are missing and installing them needs root; run this, then start again:"
      echo "sudo apt-get install -y --no-install-recommends ${packages[*]}" >&2
      exit 1
    fi
  fi
  say "installing ${#packages[@]} Debian packages: ${packages[*]}"
  if ! "${runner[@]}" env DEBIAN_FRONTEND=noninteractive bash -c '
      apt-get -q -o DPkg::Lock::Timeout=300 update &&
      apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@"' \
    apt "${packages[@]}" </dev/null >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    fail "apt-get failed (whole log: $log); with no network, install the packages above by hand"
  fi
}

# --- LibTorch and Arrow ----------------------------------------------------------------------------------

wheel_pins() { grep -hv '^#' "${wheel_lists[@]}"; }

# Directories appear by one rename, so one that is there is whole; .wheels says what is in it.
libtorch_is_complete() {
  local pin
  if [[ ! -e $libtorch/.wheels ]]; then
    ! $with_cuda && [[ -e $libtorch/torch/lib/libtorch_cpu.so && -d $libtorch/torch/include/ATen &&
      -e $libtorch/nvidia/cu13/lib/libcupti.so.13 && -e $libtorch/nvidia/cu13/lib/libcudart.so.13 ]]
    return
  fi
  while read -r pin; do
    grep -Fxq -- "$pin" "$libtorch/.wheels" || return 1
  done < <(wheel_pins)
}

arrow_is_complete() { [[ -e $arrow/pyarrow/libparquet.so.2600 && -d $arrow/pyarrow/include/arrow ]]; }

wheels_are_complete() { libtorch_is_complete && arrow_is_complete; }

# fetch_wheels DIR LIST...: the wheels of the lists.
fetch_wheels() {
  local into=$1 arguments=() list
  shift
  for list in "$@"; do arguments+=(-r "$list"); done
  [[ -t 2 ]] || arguments+=(--quiet)
  # The C++ libraries do not depend on the Python version; naming one makes pip take the same file
  # whichever python3 is here.
  python3 -m pip --disable-pip-version-check download --no-cache-dir --require-hashes --no-deps \
    --only-binary=:all: --python-version 3.11 --implementation cp --abi cp311 --abi none \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
    --platform manylinux_2_25_x86_64 --platform manylinux_2_18_x86_64 \
    --platform manylinux2014_x86_64 --platform manylinux2010_x86_64 --platform manylinux1_x86_64 \
    --dest "$into" "${arguments[@]}" </dev/null >&2 ||
    fail "pip could not fetch the wheels of ${*#"$root"/}; they need the network once"
}

# A directory for what is not whole yet, in $work; removed at the end.
make_work() {
  [[ $(uname -m) == x86_64 ]] || fail "the pinned wheels are for x86_64, this machine is $(uname -m)"
  work=$(mktemp -d "$deps/.unpacking-XXXXXX")
  # shellcheck disable=SC2064  # the path is meant to be expanded now
  trap "rm -rf '$work'" EXIT
}

install_libtorch() {
  local work size="540 MB" flags=()
  if $with_cuda; then
    size="2.4 GB"
    flags+=(--cuda)
  fi
  make_work
  say "fetching LibTorch ($size)"
  fetch_wheels "$work/wheels" "${wheel_lists[@]}"
  say "unpacking LibTorch into $libtorch"
  python3 "$root/scripts/unpack_wheels.py" "${flags[@]}" "$work/libtorch" "$work"/wheels/*.whl
  wheel_pins >"$work/libtorch/.wheels"
  if [[ -e $libtorch ]]; then mv "$libtorch" "$work/replaced"; fi
  mv "$work/libtorch" "$libtorch"
  rm -rf "$work"
}

install_arrow() {
  local work
  make_work
  say "fetching Arrow (55 MB)"
  fetch_wheels "$work/wheels" "$arrow_list"
  python3 "$root/scripts/unpack_wheels.py" "$work/arrow" "$work"/wheels/*.whl
  if [[ -e $arrow ]]; then mv "$arrow" "$work/replaced"; fi
  mv "$work/arrow" "$arrow"
  rm -rf "$work"
}

# --- all of it ---------------------------------------------------------------------------------

mapfile -t packages < <(missing_packages)
if $check_only; then
  status=0
  if ((${#packages[@]})); then
    say "missing Debian packages: ${packages[*]}"
    status=1
  fi
  if ! libtorch_is_complete; then
    say "missing: LibTorch in $libtorch"
    status=1
  fi
  if ! arrow_is_complete; then
    say "missing: Arrow in $arrow"
    status=1
  fi
  ((status)) || say "everything is there"
  exit "$status"
fi

if ((${#packages[@]})) || ! wheels_are_complete; then
  command -v apt-get >/dev/null ||
    fail "this is not a Debian or Ubuntu machine; automodel needs g++ 12 or newer, cmake 3.22, ninja, python3 with pip, and the libraries ${libraries[*]}"
  mkdir -p "$deps"
  exec 9>"$deps/.lock"
  flock 9 # a second start waits for the first and then finds everything there
  mapfile -t packages < <(missing_packages)
  if ((${#packages[@]})); then install_packages "${packages[@]}"; fi
  libtorch_is_complete || install_libtorch
  arrow_is_complete || install_arrow
fi
