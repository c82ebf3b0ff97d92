#!/usr/bin/env bash
# Makes packages of automodel: a tar that runs wherever it is unpacked, a Debian package, a wheel.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/package.sh [--build DIR] [--out DIR] [tar] [deb] [wheel]     (default: all three)

  --build DIR  packs the build in DIR as it is; else build/release is built first
  --out DIR    where the packages go (default: build/packages); those of the same name are replaced

The tar and the Debian package hold LibTorch; the wheel takes that of the torch package beside it. All of
them need glibc and libstdc++ of Debian 12 or newer, on x86-64.
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=
out=$root/build/packages
kinds=()
while (($#)); do
  case $1 in
    --build)
      build=$(cd "${2:?--build needs a directory}" && pwd)
      shift
      ;;
    --out)
      out=${2:?--out needs a directory}
      shift
      ;;
    tar | deb | wheel) kinds+=("$1") ;;
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
((${#kinds[@]})) || kinds=(tar deb wheel)
if [[ -z $build ]]; then
  "$root/scripts/build.sh" automodel
  build=$root/build/release
fi

fail() {
  echo "package: $*" >&2
  exit 1
}
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d "$out/.packing-XXXXXX")
trap 'rm -rf "$work"' EXIT

# highest NAME FILE...: the highest version of the symbols NAME_... that the files ask for, e.g. of GLIBC.
highest() {
  local name=$1
  shift
  readelf --version-info --wide "$@" 2>/dev/null | grep -oE "\b${name}_[0-9.]+" | sed "s/^${name}_//" |
    sort -uV | tail -n 1
}

# The glibc that a wheel of these files names: what they ask for, or that of the systems whose libstdc++ they ask for.
wheel_glibc() { # wheel_glibc FILE...
  local -A systems=([3.4.29]=2.34 [3.4.30]=2.35) # gcc 11's and 12's
  local libstdcxx
  libstdcxx=$(highest GLIBCXX "$@")
  [[ -n ${systems[$libstdcxx]:-} ]] || fail "no system with GLIBCXX_$libstdcxx is listed in scripts/package.sh"
  printf '%s\n' "$(highest GLIBC "$@")" "${systems[$libstdcxx]}" | sort -V | tail -n 1
}

pack_by_cpack() { # pack_by_cpack GENERATOR
  (cd "$work" && cpack --config "$build/CPackConfig.cmake" -G "$1" -B "$work" >"$work/cpack.log" 2>&1) || {
    tail -n 20 "$work/cpack.log" >&2
    fail "cpack could not make it; the end of its log is above"
  }
}

pack_wheel() {
  local version tag glibc tree=$work/wheel package elf_files
  version=$(sed -n 's/^set(CPACK_PACKAGE_VERSION "\(.*\)")$/\1/p' "$build/CPackConfig.cmake")
  package=$tree/automodel
  mkdir -p "$tree/automodel-$version.dist-info"
  for component in program libraries data; do
    cmake --install "$build" --strip --component "$component" --prefix "$package" >"$work/install.log" || {
      tail -n 20 "$work/install.log" >&2
      fail "the installation failed; the end of its log is above"
    }
  done
  cp "$root"/packaging/wheel/automodel/*.py "$package"
  mv "$package/share/doc/automodel/licences" "$tree/automodel-$version.dist-info/licenses"
  rm -r "$package/share/doc"
  cp "$root/LICENSE" "$tree/automodel-$version.dist-info/licenses/automodel"

  mapfile -t elf_files < <(find "$package/bin" "$package/lib" -type f)
  glibc=$(wheel_glibc "${elf_files[@]}")
  tag=py3-none-manylinux_${glibc/./_}_x86_64
  sed "s/@VERSION@/$version/" "$root/packaging/wheel/METADATA.in" >"$tree/automodel-$version.dist-info/METADATA"
  cat "$root/docs/install.md" >>"$tree/automodel-$version.dist-info/METADATA"
  printf '[console_scripts]\nautomodel = automodel.launcher:main\n' \
    >"$tree/automodel-$version.dist-info/entry_points.txt"
  printf 'Wheel-Version: 1.0\nGenerator: automodel package.sh\nRoot-Is-Purelib: false\nTag: %s\n' "$tag" \
    >"$tree/automodel-$version.dist-info/WHEEL"
  python3 "$root/scripts/make_wheel.py" "$tree" "$work" >/dev/null
}

for kind in "${kinds[@]}"; do
  echo "package: $kind" >&2
  case $kind in
    tar) pack_by_cpack TGZ ;;
    deb)
      command -v dpkg-shlibdeps >/dev/null || fail "a Debian package needs dpkg-shlibdeps; install dpkg-dev"
      pack_by_cpack DEB
      ;;
    wheel) pack_wheel ;;
  esac
done
for package in "$work"/*.tar.gz "$work"/*.deb "$work"/*.whl; do
  [[ -e $package ]] || continue
  mv "$package" "$out/"
  echo "$out/$(basename "$package") ($(($(stat -c %s "$out/$(basename "$package")") / 1000000)) MB)"
done
