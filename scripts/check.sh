#!/usr/bin/env bash
# Checks that need no build: rooms, text rules, the recipe reference, the site's menu, the manual page, whether mutations
# apply, formatting, shell scripts; clang-tidy on request.
# usage: scripts/check.sh [--tidy [BASE]]
#   --tidy  also runs clang-tidy on the files that differ from the commit BASE (default: HEAD~1)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
failed=()
run() { # run NAME COMMAND...
  local name=$1
  shift
  echo "check: $name" >&2
  "$@" || failed+=("$name")
}

tidy_changed() {
  local base=$1 files
  # The loops are compiled with a flag of gcc's that clang does not know.
  mapfile -t files < <(git diff --name-only --diff-filter=d "$base" -- 'src/*.cpp' ':!src/kernels/cpu/loops_*' \
    ':!src/kernels/cpu/products_*')
  ((${#files[@]})) || return 0
  [[ -e build/lint/compile_commands.json ]] || cmake --preset lint >/dev/null
  printf '%s\0' "${files[@]}" |
    xargs -0 -n 1 -P "$(nproc)" clang-tidy-14 --quiet -p build/lint 2> >(grep -v ' warnings generated' >&2)
}

# A page that the site's menu does not name is found by nobody who reads the site.
pages_listed() {
  local page status=0
  while read -r page; do
    grep -q "[ :]$page\$" mkdocs.yml || {
      echo "mkdocs.yml: does not list $page" >&2
      status=1
    }
  done < <(git ls-files --cached --others --exclude-standard 'docs/*.md')
  return "$status"
}

# A patch that no longer fits is made anew with the code that it breaks.
mutations_apply() {
  local patch status=0
  for patch in tests/mutations/*.patch; do git apply --check "$patch" || status=1; done
  return "$status"
}

mapfile -t sources < <(git ls-files --cached --others --exclude-standard -- \
  '*.cpp' '*.h' '*.cu' '*.cuh' | grep -E '^(src|tests|examples|fuzz|scripts)/' || true)
mapfile -t scripts < <(git ls-files --cached --others --exclude-standard -- \
  'scripts/*.sh' 'scripts/hooks/*' scripts/automodel .ci/run 'packaging/slurm/*')

run "rooms" python3 scripts/check_rooms.py src
run "the rooms check itself" python3 tests/scripts/check_rooms_test.py --quiet
run "text" python3 scripts/check_text.py .
# A test holds the schema against the program; this holds the page against the schema.
run "the recipe reference" python3 scripts/make_recipe_reference.py --check
run "the site's menu" pages_listed
run "the manual page" python3 scripts/make_man_page.py --check
run "the mutations" mutations_apply
for tool in clang-format-14 shellcheck; do
  if ! command -v "$tool" >/dev/null; then
    echo "check: $tool is missing; run scripts/setup.sh --dev" >&2
    failed+=("$tool")
  fi
done
if command -v clang-format-14 >/dev/null && ((${#sources[@]})); then
  run "format" clang-format-14 --dry-run -Werror "${sources[@]}"
fi
if command -v shellcheck >/dev/null; then run "shell scripts" shellcheck "${scripts[@]}"; fi
if [[ ${1:-} == --tidy ]]; then run "clang-tidy" tidy_changed "${2:-HEAD~1}"; fi

if ((${#failed[@]})); then
  echo "check: failed: ${failed[*]}" >&2
  exit 1
fi
echo "check: everything passed" >&2
