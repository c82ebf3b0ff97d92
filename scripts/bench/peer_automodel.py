#!/usr/bin/env python3
"""NeMo AutoModel's own command line on a machine without CUDA: one rank, as torchrun starts it.

Its recipe reads CUDA's memory counters and puts models on the current CUDA device whatever the
backend: the counters read 0 here and the device is the CPU. The rest is AutoModel's.
"""

import runpy
import types

import torch


class TorchOnCPU(types.ModuleType):
    """torch, but for the devices that are asked for."""

    def __getattr__(self, name):
        return getattr(torch, name)

    @staticmethod
    def device(*_):
        return torch.device("cpu")


if not torch.cuda.is_available():
    torch.cuda.reset_peak_memory_stats = lambda *_: None
    torch.cuda.max_memory_allocated = lambda *_: 0
    torch.cuda.current_device = lambda: "cpu"
    from nemo_automodel._transformers import auto_model

    auto_model.torch = TorchOnCPU("torch")

runpy.run_module("nemo_automodel.cli.app", run_name="__main__", alter_sys=True)
