#!/usr/bin/env bash
# Trains every family's golden model for two steps from its Hugging Face folder, and holds what is
# exported against transformers.
# usage: scripts/check_exports.sh [FAMILY]...     (folders of tests/golden, or "chat", which trains on conversations
# with a chat template of the recipe's; default: all)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
automodel=${AUTOMODEL_BINARY:-$root/build/release/automodel}
families=("$@")
if ((!${#families[@]})); then
  for weights in tests/golden/*/model.safetensors; do
    families+=("$(basename "$(dirname "$weights")")")
  done
  families+=(chat)
fi
python=$(scripts/setup_peers.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

folders=()
status=0
for family in "${families[@]}"; do
  recipe=recipes/smoke/mock_pretrain.yaml
  changes=(--dataset.vocab_size=64 --dataset.seq_len=16 --model.config=None
    --model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
    --model.pretrained_model_name_or_path="tests/golden/$family")
  if [[ $family == chat ]]; then
    recipe=recipes/llm_finetune/chat_quickstart.yaml
    changes=(--lr_scheduler.lr_warmup_steps=0)
  fi
  if [[ $family == diffusion_gemma ]]; then # its recipe's own model, for the tokenizer's sake
    recipe=recipes/smoke/tiny_diffusion_gemma.yaml
    changes=()
  fi
  if [[ $family == llada || $family == llada2_moe ]]; then # likewise, from the configurations of their kinds
    recipe=recipes/smoke/tiny_llada.yaml
    config=${family%_moe}
    changes=(--model.config.pretrained_model_name_or_path="configs/tiny/$config")
  elif [[ $family == llada_* ]]; then # no class of transformers computes these
    continue
  fi
  if "$automodel" run "$recipe" "${changes[@]}" --step_scheduler.max_steps=2 \
    --checkpoint.enabled=true --checkpoint.save_consolidated=true --checkpoint.model_save_format=safetensors \
    --checkpoint.checkpoint_dir="$work/$family" >"$work/$family.log" 2>&1; then
    "$automodel" parity --export "$work/$family/LATEST/model/consolidated" || status=1
    mv "$work/$family"/LATEST/model/consolidated "$work/exported-$family"
    folders+=("$work/exported-$family")
  else
    tail -n 5 "$work/$family.log" >&2
    echo "exports: $family could not be trained" >&2
    status=1
  fi
done
"$python" scripts/check_export.py --automodel "$automodel" "${folders[@]}" || status=1
exit "$status"
