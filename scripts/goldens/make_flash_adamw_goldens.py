#!/usr/bin/env python3
"""Makes tests/optim/data/flash_adamw.safetensors: what flashoptim's FlashAdamW computes, by its own Triton kernels in
Triton's interpreter.

  start                float32, the parameter before the first step; rounded to the dtype of a case
  gradients            bfloat16 [steps, elements]
  rates                float64, the learning rate of each step

and for each case NAME, after the first and after the last step (NAME.1.X, NAME.5.X)

  parameter
  exp_avg, exp_avg_sq                 int8 and uint8; in the parameter's dtype where the case does not quantize
  exp_avg_scales, exp_avg_sq_scales   float16, one for each 32 elements; absent where the case does not quantize
  error_bits                          int8 (24 bits) or int16 (32 bits); absent without correction

The interpreter has numpy's arithmetic: float32, every operation rounded; a device contracts multiplications and
additions, and its quotients may be two units of the last place off. What the interpreter does otherwise is put right:
numbers that are arguments become float32, and bfloat16 is rounded to the nearest, as on a device; powers and signs are
libdevice's (powers are rounded once, from float64); a device's number of processors only splits the work; and averages in
8 bits begin as the zeros that quantizing zeros gives.

Run: python scripts/goldens/make_flash_adamw_goldens.py, by a python with torch 2.11, its Triton (3.6), safetensors, numpy 2.2
(Triton's interpreter fails with 2.4) and flashoptim 0.1.4.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"

import importlib.metadata

import flashoptim
import flashoptim.optimizers as kernels
import numpy as np
import torch
import triton.language as tl
from safetensors.torch import save_file
from triton.runtime import interpreter

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
OUT = os.path.join(ROOT, "tests", "optim", "data", "flash_adamw.safetensors")
VERSIONS = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("flashoptim", "triton", "torch"))
NUM_STEPS = 5
NUM_ELEMENTS = 620  # 19 groups, and 12 elements of another one
RATES = [1e-2, 1e-2, 5e-3, 5e-3, 2e-3]

# name: options, dtype of the parameter
CASES = {
    "float32": (dict(master_weight_bits=None), torch.float32),
    "float32_unquantized": (dict(master_weight_bits=None, quantize=False), torch.float32),
    "bfloat16": (dict(master_weight_bits=None), torch.bfloat16),
    "bfloat16_24": (dict(master_weight_bits=24), torch.bfloat16),
    "bfloat16_32": (dict(master_weight_bits=32, betas=(0.8, 0.95), eps=1e-5), torch.bfloat16),
    "bfloat16_unquantized": (dict(master_weight_bits=None, quantize=False), torch.bfloat16),
    "bfloat16_24_unquantized": (dict(master_weight_bits=24, quantize=False), torch.bfloat16),
    "bfloat16_32_unquantized": (dict(master_weight_bits=32, quantize=False), torch.bfloat16),
    "float16_24": (dict(master_weight_bits=24), torch.float16),
    "decoupled_rate": (dict(master_weight_bits=None, decouple_lr=True), torch.float32),
}


def numbers(value):
    value = value.value if isinstance(value, tl.constexpr) else value
    return value.handle.data if isinstance(value, tl.tensor) else np.array([value])


def as_float32(array, dtype):
    return tl.tensor(interpreter.TensorHandle(array.astype(np.float32), tl.float32), dtype)


def power(base, exponent):
    return as_float32(numbers(base).astype(np.float64) ** numbers(exponent), base.type)


def copysign(magnitude, sign):
    return as_float32(np.copysign(numbers(magnitude), numbers(sign)), magnitude.type)


def argument(value, as_before=interpreter._implicit_cvt):
    return as_float32(np.array([value]), tl.float32) if isinstance(value, float) else as_before(value)


def converted(values, from_dtype, to_dtype, rounding_mode, as_before=interpreter._convert_float):
    if (from_dtype, to_dtype) == (tl.float32, tl.bfloat16):
        return torch.from_numpy(np.array(values)).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    assert (from_dtype, to_dtype) == (tl.bfloat16, tl.float32)  # exact
    return as_before(values, from_dtype, to_dtype, rounding_mode)


def zero_state(self, data):
    """In place of set_data, which is called before the first step only."""
    assert data.count_nonzero() == 0
    if self._try_quantize:
        self._quantized = torch.zeros(data.shape, dtype=torch.int8 if self._signed else torch.uint8)
        self._scales = torch.zeros((data.numel() + 31) // 32, dtype=torch.float16)
    else:
        self._data = data.to(self._storage_dtype)


def patch():
    torch.cuda.is_available = lambda: True
    kernels._get_sm_count = lambda device=None: 1
    interpreter._implicit_cvt = argument
    interpreter._convert_float = converted
    kernels.libdevice.pow = power
    kernels.libdevice.copysign = copysign
    kernels._MaybeQuantizedTensor.set_data = zero_state


def some_gradients():
    """Of magnitudes that differ by two orders within a group, with zeros, and a whole group of zeros."""
    gradients = torch.randn(NUM_STEPS, NUM_ELEMENTS) * 10 ** (torch.rand(NUM_ELEMENTS) * -2)
    gradients[:, ::17] = 0
    gradients[:, 64:96] = 0
    return gradients.to(torch.bfloat16)


def state_of(optimizer, parameter):
    seen = dict(parameter=parameter.detach().clone())
    state = optimizer.state[parameter]
    for name in ("exp_avg", "exp_avg_sq"):
        seen[name] = state[name].kernel_tensor.clone()
        if state[name].is_quantized():
            seen[name + "_scales"] = state[name].scales.clone()
    if "error_bits" in state:
        seen["error_bits"] = state["error_bits"].clone()
    return seen


def main():
    patch()
    torch.manual_seed(8)
    start, gradients = torch.randn(NUM_ELEMENTS), some_gradients()
    start[:4] = torch.tensor([0.0, 1.0, -2.0, 1e-39])  # zero, where a gap changes, and a subnormal number
    out = dict(start=start, gradients=gradients, rates=torch.tensor(RATES, dtype=torch.float64))
    for name, (options, dtype) in CASES.items():
        parameter = torch.nn.Parameter(start.to(dtype).clone())
        optimizer = flashoptim.FlashAdamW([parameter], lr=RATES[0], weight_decay=0.1, **options)
        for step, (rate, gradient) in enumerate(zip(RATES, gradients), 1):
            optimizer.param_groups[0]["lr"] = rate
            parameter.grad = gradient.to(dtype)
            optimizer.step()
            if step in (1, NUM_STEPS):
                out.update({f"{name}.{step}.{key}": value for key, value in state_of(optimizer, parameter).items()})
        moved = (parameter.detach().float() - start).abs().mean().item()
        print(f"{name}: updates of {moved:.1e} in the mean")
    save_file(out, OUT, metadata=dict(made_with=VERSIONS))


main()
