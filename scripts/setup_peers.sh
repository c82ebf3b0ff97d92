#!/usr/bin/env bash
# Puts the Python packages that goldens are made with and exports are held against into a virtual
# environment, and prints its python. automodel itself needs none of them.
# usage: scripts/setup_peers.sh [--bitsandbytes] [--torchao] [--mlflow] [--wandb] [DIR]     (default: build/peers)
#   --bitsandbytes  with what make_four_bit_goldens.py and make_adam_8bit_goldens.py need
#   --torchao       with what make_qat_goldens.py needs
#   --mlflow        with an MLflow server in an environment of its own; prints its mlflow in a second line
#   --wandb         with the wandb package in an environment of its own; prints its wandb in a line behind
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
into=""
has_bitsandbytes=false
has_torchao=false
has_mlflow=false
has_wandb=false
for argument in "$@"; do
  case $argument in
    -h | --help)
      sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"
      exit 0
      ;;
    --bitsandbytes) has_bitsandbytes=true ;;
    --torchao) has_torchao=true ;;
    --mlflow) has_mlflow=true ;;
    --wandb) has_wandb=true ;;
    -*)
      echo "setup_peers: unknown option $argument; --help lists them" >&2
      exit 2
      ;;
    *) into=$argument ;;
  esac
done
into=${into:-$root/build/peers}
deps=${AUTOMODEL_DEPS:-$root/.deps}
packages=(transformers==5.18.0 safetensors==0.8.0 numpy jsonschema psutil)
adapters=(peft==0.21.2 accelerate==1.15.0) # without what they ask for: all of it is there
torch_packages=(filelock typing_extensions sympy networkx jinja2 fsspec setuptools)

if [[ ! -e $into/.complete_with_peft ]]; then
  echo "peers: fetching torch, transformers and peft into $into" >&2
  python3 -m venv "$into" || {
    echo "peers: python3 cannot make virtual environments; install python3-venv" >&2
    exit 1
  }
  pip() { "$into/bin/python" -m pip --quiet --disable-pip-version-check "$@" >&2; }
  if [[ -d $deps/libtorch-2.11.0/nvidia ]] && grep -q nvidia-cudnn "$deps/libtorch-2.11.0/.wheels"; then
    # The CUDA libraries that torch loads when it is imported are there: 2 GB less to fetch.
    pip install --no-deps torch==2.11.0
    pip install "${torch_packages[@]}" "${packages[@]}"
    site=$("$into/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    ln -s "$deps/libtorch-2.11.0/nvidia" "$site/nvidia"
  else
    pip install torch==2.11.0 "${packages[@]}"
  fi
  pip install --no-deps "${adapters[@]}"
  "$into/bin/python" -c 'import torch, transformers, peft'
  touch "$into/.complete_with_peft"
fi
if [[ ! -e $into/.complete_with_tensorboard ]]; then
  echo "peers: fetching tensorboard" >&2
  "$into/bin/python" -m pip --quiet --disable-pip-version-check install tensorboard==2.21.0 >&2
  touch "$into/.complete_with_tensorboard"
fi
if $has_bitsandbytes && [[ ! -e $into/.complete_with_bitsandbytes ]]; then
  echo "peers: fetching bitsandbytes" >&2
  "$into/bin/python" -m pip --quiet --disable-pip-version-check install --no-deps bitsandbytes==0.50.2 >&2
  "$into/bin/python" -c 'import bitsandbytes'
  touch "$into/.complete_with_bitsandbytes"
fi
if $has_torchao && [[ ! -e $into/.complete_with_torchao ]]; then
  echo "peers: fetching torchao" >&2
  "$into/bin/python" -m pip --quiet --disable-pip-version-check install --no-deps torchao==0.18.0 >&2
  "$into/bin/python" -c 'import torchao'
  touch "$into/.complete_with_torchao"
fi
if $has_mlflow && [[ ! -e $into/mlflow/.complete ]]; then
  echo "peers: fetching mlflow" >&2
  python3 -m venv "$into/mlflow"
  "$into/mlflow/bin/python" -m pip --quiet --disable-pip-version-check install mlflow==3.17.2 >&2
  touch "$into/mlflow/.complete"
fi
if $has_wandb && [[ ! -e $into/wandb/.complete ]]; then
  echo "peers: fetching wandb" >&2
  python3 -m venv "$into/wandb"
  "$into/wandb/bin/python" -m pip --quiet --disable-pip-version-check install wandb==0.31.0 >&2
  touch "$into/wandb/.complete"
fi
echo "$into/bin/python"
if $has_mlflow; then echo "$into/mlflow/bin/mlflow"; fi
if $has_wandb; then echo "$into/wandb/bin/wandb"; fi
