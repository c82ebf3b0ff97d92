#!/usr/bin/env bash
# Builds the pages of this repository as a site that any web server, or a browser by itself, can show:
# build/site/html/index.html. A link or anchor that leads nowhere fails it. (That mkdocs.yml lists every page of docs/ is
# held by scripts/check.sh.) MkDocs and its theme come from PyPI into a virtual environment below build/, once.
# usage: scripts/build_site.sh
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
case ${1:-} in
  "") ;;
  -h | --help)
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
    exit 0
    ;;
  *)
    echo "site: unknown argument $1; --help says more" >&2
    exit 2
    ;;
esac

tools=build/site/tools
wanted=$(sha256sum scripts/site_requirements.txt)
if [[ $(cat "$tools/.complete" 2>/dev/null) != "$wanted" ]]; then
  echo "site: fetching MkDocs" >&2
  rm -rf "$tools"
  python3 -m venv "$tools" || {
    echo "site: python3 cannot make virtual environments; install python3-venv" >&2
    exit 1
  }
  "$tools/bin/python" -m pip --quiet --disable-pip-version-check install -r scripts/site_requirements.txt >&2
  echo "$wanted" >"$tools/.complete"
fi

# The pages lie as in the repository, so that a link which is right there is right here.
rm -rf build/site/pages
mkdir -p build/site/pages
git ls-files -z --cached --others --exclude-standard '*.md' 'docs/*.svg' 'examples/*.cpp' LICENSE |
  xargs -0 cp --parents -t build/site/pages
# (--quiet would keep warnings from --strict.)
NO_MKDOCS_2_WARNING=1 "$tools/bin/mkdocs" build --strict 2>&1 | { grep -v '^INFO' || true; } >&2 || {
  echo "site: what is wrong with the pages is above" >&2
  exit 1
}
echo "build/site/html/index.html"
