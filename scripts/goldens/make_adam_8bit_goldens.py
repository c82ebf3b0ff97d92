#!/usr/bin/env python3
"""Makes tests/optim/data/adam_8bit.safetensors: what bitsandbytes' 8-bit optimizers compute on the CPU.

  signed, unsigned     the 256 values of each map (create_dynamic_map)
  start                float32, the parameter before the first step
  gradients            bfloat16 [steps, elements]

and for each case NAME, after the first and after the last step (NAME.1.X, NAME.5.X)

  parameter
  state1, state2       uint8; float32 in the case of a parameter below min_8bit_size
  absmax1, absmax2     float32, one for each 256 elements; absent in that case

States are rounded to the nearest code by bitsandbytes' own formula, which its GPU kernels share: the CPU's library takes
another code for numbers next to the middle between two. How far that carries is printed.

Run: python scripts/goldens/make_adam_8bit_goldens.py, by the python that scripts/setup_peers.sh --bitsandbytes prints.
"""

import os

import bitsandbytes
import bitsandbytes.backends.cpu.ops as cpu_ops
import bitsandbytes.functional as F
import torch
from safetensors.torch import save_file

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
OUT = os.path.join(ROOT, "tests", "optim", "data", "adam_8bit.safetensors")
VERSIONS = f"torch {torch.__version__.split('+')[0]}, bitsandbytes {bitsandbytes.__version__}"
NUM_STEPS = 5
NUM_ELEMENTS = 4300  # 16 blocks, and 204 elements of another one
LR = 1e-2

# name: optimizer, its options, dtype of the parameter
CASES = {
    "adamw": (bitsandbytes.optim.AdamW8bit, dict(weight_decay=0.1), torch.float32),
    "adam": (bitsandbytes.optim.Adam8bit, dict(weight_decay=0.1, betas=(0.8, 0.95), eps=1e-5), torch.float32),
    "bfloat16": (bitsandbytes.optim.PagedAdamW8bit, dict(), torch.bfloat16),
    "small": (bitsandbytes.optim.AdamW8bit, dict(min_8bit_size=NUM_ELEMENTS + 1), torch.float32),
}


def nearest_codes(numbers, code, absmax_out, out, blocksize):
    formula = torch.ops.bitsandbytes.quantize_blockwise.default._op_dk
    codes, absmax = formula(torch._C.DispatchKey.CompositeExplicitAutograd, numbers, code, blocksize)
    out.copy_(codes)
    absmax_out.copy_(absmax)


def some_gradients():
    """Of magnitudes that differ by two orders within a block, with zeros, and a whole block of zeros."""
    gradients = torch.randn(NUM_STEPS, NUM_ELEMENTS) * 10 ** (torch.rand(NUM_ELEMENTS) * -2)
    gradients[:, ::17] = 0
    gradients[:, 512:768] = 0
    return gradients.to(torch.bfloat16)


def run(kind, options, dtype, start, gradients):
    """The parameter and its state after each step."""
    parameter = torch.nn.Parameter(start.to(dtype).clone())
    optimizer = kind([parameter], lr=LR, **options)
    seen = []
    for gradient in gradients:
        parameter.grad = gradient.to(dtype)
        optimizer.step()
        state = optimizer.state[parameter]
        kept = {key: state[key].clone() for key in ("state1", "state2", "absmax1", "absmax2") if key in state}
        seen.append(dict(kept, parameter=parameter.detach().clone()))
    return seen


torch.set_num_threads(1)
torch.manual_seed(8)
start, gradients = torch.randn(NUM_ELEMENTS), some_gradients()
out = dict(
    start=start,
    gradients=gradients,
    signed=F.create_dynamic_map(signed=True),
    unsigned=F.create_dynamic_map(signed=False),
)
by_library = cpu_ops._quant_blockwise_fp32_direct
for name, (kind, options, dtype) in CASES.items():
    cpu_ops._quant_blockwise_fp32_direct = by_library
    library = run(kind, options, dtype, start, gradients)
    cpu_ops._quant_blockwise_fp32_direct = nearest_codes
    nearest = run(kind, options, dtype, start, gradients)
    for step in (1, NUM_STEPS):
        for key, value in nearest[step - 1].items():
            out[f"{name}.{step}.{key}"] = value
    moved = (nearest[-1]["parameter"].float() - start).abs().mean().item()
    apart = (nearest[-1]["parameter"].float() - library[-1]["parameter"].float()).abs()
    text = f"{name}: the CPU's library is {apart.max().item():.1e} off at most, {apart.mean().item():.1e} in the mean"
    print(f"{text}, of updates of {moved:.1e} in the mean")
os.makedirs(os.path.dirname(OUT), exist_ok=True)
save_file(out, OUT, metadata=dict(made_with=VERSIONS))
