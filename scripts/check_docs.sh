#!/usr/bin/env bash
# Runs the commands of docs/tasks and of the pages about installing, recipes and runs: the blocks of each page that begin
# with ```sh, one after the other, in a folder that has nothing but two short runs in checkpoints/quickstart and
# checkpoints/other, with a tiny model as $MODEL, a home of its own and no network. The first command that fails is named
# with its page.
# usage: scripts/check_docs.sh [PROGRAM] [PAGE]...     (default: build/release/automodel, all pages)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
program=$(realpath "${1:-$root/build/release/automodel}")
shift $(($# > 0))
pages=("$@")
((${#pages[@]})) || mapfile -t pages < <(find "$root/docs/tasks" -name '*.md' ! -name README.md | sort &&
  printf "$root/docs/%s.md\n" install recipes_at_hand seeing_a_run)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/model"
ln -s "$program" "$work/bin/automodel"
cp "$root"/tests/recipes/data/tiny_llama/* "$root"/configs/quickstart_tokenizer/* "$work/model"
for run in quickstart other; do
  OMP_NUM_THREADS=1 "$program" run "$root/recipes/quickstart.yaml" --step_scheduler.max_steps=3 --lr_scheduler.lr_warmup_steps=0 \
    --checkpoint.checkpoint_dir="$work/runs/$run" >"$work/$run.log" 2>&1 </dev/null || {
    cat "$work/$run.log" >&2
    exit 1
  }
done

status=0
for page in "${pages[@]}"; do
  name=$(basename "$page" .md)
  mkdir -p "$work/$name/home"
  cp -r "$work/runs" "$work/$name/checkpoints"
  # Each command is printed before it is run; what they all said is shown when one fails.
  awk 'BEGIN {print "set -euo pipefail -o verbose"} /^```sh$/ {inside = 1; next} /^```/ {inside = 0} inside' \
    "$page" >"$work/$name.sh"
  (($(wc -l <"$work/$name.sh") > 1)) || {
    echo "check_docs: $name.md has no commands" >&2
    status=1
  }
  start=$EPOCHREALTIME
  if (cd "$work/$name" && env PATH="$work/bin:$PATH" HOME="$PWD/home" MODEL="$work/model" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 \
    bash "$work/$name.sh") >"$work/$name.log" 2>&1 </dev/null; then
    echo "check_docs: $name.md: $(awk "BEGIN {printf \"%.1f\", $EPOCHREALTIME - $start}") s" >&2
  else
    cat "$work/$name.log" >&2
    echo "check_docs: a command of $name.md fails; what was said is above" >&2
    status=1
  fi
done
exit "$status"
