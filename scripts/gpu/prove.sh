#!/usr/bin/env bash
# Proves on a machine with a GPU what only such a machine can show, part by part, each meant to take less than nine minutes:
#   machine     the GPU, the libraries that the program finds, `automodel doctor`
#   goldens     logits, losses and gradients of every family beside transformers', in float32 and bfloat16
#   curves      the losses of small models of several kinds beside the CPU's, in float32 and bfloat16
#   documents   the same of conversations, packed into rows and padded
#   settings    the same of strategies, offloading, recomputation, adapters and optimizers
#   saves       a run that is saved and goes on beside one that is not, in float32 and bfloat16
#   kernels     our kernels beside PyTorch's operations: losses of small models, and tokens a second
#   recorded    steps recorded as one CUDA graph beside those launched kernel by kernel: the same two
#   context     memory over the length of a sequence
#   faults      too large a batch: an error that says so
#   lora_small  tokens a second beside transformers and PEFT: Qwen 3 0.6B, LoRA, 2 x 2048
#   full_small  the same, all weights
#   experts     a mixture of 32 experts, all weights
#   lora_8b     Llama 3.1 8B, LoRA, 1 x 4096
#   full_7b     a model of 7B, all weights in bfloat16, 8 x 1024: MFU
# usage: scripts/gpu/prove.sh [--out FOLDER] [--rehearse] [PART]...      (default: all; --help says more)
# Needs a CUDA build (build/cuda: automodel, automodel_cuda, test_models) and a python3 whose torch has the CUDA
# libraries; transformers and PEFT for peers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# The CUDA libraries of the Python's torch, which LibTorch's own are.
libraries=$(python3 - <<'PYTHON' || true
import pathlib, site, sysconfig
roots = {pathlib.Path(path) for path in [*site.getsitepackages(), sysconfig.get_paths()["purelib"]]}
print(":".join(str(path) for root in roots for path in [*root.glob("torch/lib"), *root.glob("nvidia/*/lib")]))
PYTHON
)
export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec python3 scripts/gpu/prove.py "$@"
