#!/usr/bin/env python3
"""Makes tests/golden/fsdp2/: what PyTorch's FSDP2 computes, over processes with Gloo on the CPU.

Two models, whose inputs and (for the toy) initial values are formulas that the tests repeat:

  toy    three residual blocks x + relu(x w1 + b) w2 between a scale and a head
  llama  tests/golden/llama_default: configuration and weights

A step takes the same 12 rows whatever the number of ranks and micro-batches. The loss of a
micro-batch is the sum of its cross-entropies / labels of the step over all ranks * ranks, and FSDP
averages gradients, so every case is the same mathematics; only rounding differs. Five steps of
torch.optim.AdamW (lr 1e-3, betas 0.9 0.999, eps 1e-8, weight decay 0.01), gradients clipped to a
norm of 1.

<model>.safetensors holds, of one process in float64 from the same initial values:

  float64.losses, float64.norms        [5]
  float64.gradient.<name>              of the first step, not clipped
  float64.weight.<name>                after five steps

and of every case <mesh>.<dtype>.<accumulation>, where mesh is 1, 2, 4 (ranks) or 2x2 (HSDP), dtype
float32 or bfloat16 (computed in bfloat16, reduced and stored in float32), and accumulation 1,
3deferred (reduced once) or 3each (reduced after every micro-batch), in float64 unless stated:

  losses, norms                        [5]
  gradient_distance, weight_distance   [tensors]  |x - float64's| / |float64's|, names in order
  gradient_sample, weight_sample       float32: every stride-th element of all tensors in order of
                                       their names, read as one

Both values of reshard_after_forward must give the same bits; the script stops when they do not.

Run: python scripts/goldens/make_fsdp_goldens.py [model ...]; needs torch, transformers, safetensors.
"""

import contextlib
import itertools
import math
import os
import sys
import tempfile

import safetensors
import torch
import torch.distributed as dist
import torch.multiprocessing
import transformers
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from transformers.models.llama import modeling_llama

ROOT = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tests", "golden")
ROWS = 12
STEPS = 5
LENGTH = 16
MESHES = {"1": (1,), "2": (2,), "4": (4,), "2x2": (2, 2)}
DTYPES = ("float32", "bfloat16")
ACCUMULATIONS = {"1": (1, True), "3deferred": (3, True), "3each": (3, False)}
STRIDES = {"toy": 1, "llama": 16}


class ToyBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(6, 5))
        self.b = nn.Parameter(torch.empty(5))
        self.w2 = nn.Parameter(torch.empty(5, 6))

    def forward(self, x):
        return x + torch.relu(torch.addmm(self.b, x, self.w1)) @ self.w2


class Toy(nn.Module):
    """Element i of parameter p, in order of registration, begins as 0.6 sin(1.7 i + 0.9 p + 0.3)."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(6))
        self.head = nn.Parameter(torch.empty(6, 5))
        self.blocks = nn.ModuleList(ToyBlock() for _ in range(3))
        for p, parameter in enumerate(self.parameters()):
            values = [0.6 * math.sin(1.7 * i + 0.9 * p + 0.3) for i in range(parameter.numel())]
            parameter.data = torch.tensor(values).view(parameter.shape)

    def forward(self, x):
        x = x.to(self.scale.dtype) * self.scale
        for block in self.blocks:
            x = block(x)
        return x @ self.head

    @property
    def units(self):
        return self.blocks

    @staticmethod
    def rows(step):
        """Row r of step s, numbered n = 12 s + r: x_j = sin(0.7 n + 1.3 j), label 3 n mod 5."""
        numbers = [ROWS * step + row for row in range(ROWS)]
        x = torch.tensor([[math.sin(0.7 * n + 1.3 * j) for j in range(6)] for n in numbers])
        labels = torch.tensor([-100 if n % 7 == 6 else 3 * n % 5 for n in numbers])
        return x, labels


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        folder = os.path.join(ROOT, "llama_default")
        config = transformers.AutoConfig.from_pretrained(folder)
        self.model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
        self.model.load_state_dict(load_file(os.path.join(folder, "model.safetensors")), strict=True)

    def forward(self, tokens):
        return self.model(input_ids=tokens, use_cache=False).logits

    @property
    def units(self):
        return self.model.model.layers

    @staticmethod
    def rows(step):
        """Token t of row n = 12 s + r is 4 + (31 n n + 17 t t + 7 n t) mod 124; a label is the next
        token, except where (n + t) mod 5 == 0 or t < n mod 4."""
        numbers = torch.arange(ROWS * step, ROWS * (step + 1)).view(-1, 1)
        t = torch.arange(LENGTH + 1)
        tokens = 4 + (31 * numbers * numbers + 17 * t * t + 7 * numbers * t) % 124
        labels = tokens[:, 1:].clone()
        at = t[:-1]
        labels[((numbers + at) % 5 == 0) | (at < numbers % 4)] = -100
        return tokens[:, :-1].contiguous(), labels


MODELS = {"toy": Toy, "llama": Llama}


@contextlib.contextmanager
def llama_in_float64():
    """transformers' norms and rotary tables go through float32 whatever the model's dtype."""

    def norm(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)

    def rotary(self, x, position_ids):
        dims = torch.arange(0, self.config.head_dim, 2, dtype=torch.float64) / self.config.head_dim
        angles = position_ids[..., None].double() / self.config.rope_parameters["rope_theta"] ** dims
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()

    originals = modeling_llama.LlamaRMSNorm.forward, modeling_llama.LlamaRotaryEmbedding.forward
    modeling_llama.LlamaRMSNorm.forward = norm
    modeling_llama.LlamaRotaryEmbedding.forward = rotary
    yield
    modeling_llama.LlamaRMSNorm.forward, modeling_llama.LlamaRotaryEmbedding.forward = originals


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def named(model, value_of):
    """Copies of what `value_of` takes from every parameter, by Hugging Face names."""
    prefix = "model." if isinstance(model, Llama) else ""
    return {
        name.removeprefix(prefix): whole(value_of(parameter)).detach().clone()
        for name, parameter in model.named_parameters()
    }


def backward(model, step, num_micro_batches, defers):
    """Gradients of a step; returns its loss."""
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    inputs, labels = model.rows(step)
    num_labels = (labels != -100).sum().item()
    is_double = next(model.parameters()).dtype == torch.float64
    if is_double and inputs.is_floating_point():
        inputs = inputs.double()
    size = ROWS // num_micro_batches // ranks
    total = torch.zeros((), dtype=torch.float64)
    for i in range(num_micro_batches):
        is_last = i + 1 == num_micro_batches
        if hasattr(model, "set_requires_gradient_sync"):
            model.set_requires_gradient_sync(is_last or not defers)
        begin = (i * ranks + rank) * size
        logits = model(inputs[begin : begin + size])
        logits = logits if is_double else logits.float()
        loss = nn.functional.cross_entropy(
            logits.flatten(0, -2), labels[begin : begin + size].flatten(), reduction="sum"
        ) / (num_labels / ranks)
        loss.backward()
        total += loss.detach().double() / ranks
    if ranks > 1:
        dist.all_reduce(total)
    return total


def train(model, num_micro_batches, defers):
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01
    )
    losses, norms, gradients = [], [], None
    for step in range(STEPS):
        losses.append(backward(model, step, num_micro_batches, defers))
        if gradients is None:
            gradients = named(model, lambda parameter: parameter.grad)
        norms.append(whole(nn.utils.clip_grad_norm_(model.parameters(), 1.0)).double())
        optimizer.step()
        optimizer.zero_grad()
    weights = named(model, lambda parameter: parameter)
    return dict(losses=torch.stack(losses), norms=torch.stack(norms), gradient=gradients, weight=weights)


def train_in_float64(name):
    with llama_in_float64():
        return train(MODELS[name]().double(), 1, True)


def train_sharded(name, mesh, dtype, reshards, num_micro_batches, defers):
    model = MODELS[name]()
    policy = MixedPrecisionPolicy()
    if dtype == "bfloat16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    options = dict(mesh=mesh, mp_policy=policy, reshard_after_forward=reshards)
    for unit in model.units:
        fully_shard(unit, **options)
    fully_shard(model, **options)
    return train(model, num_micro_batches, defers)


def distances(values, references):
    return torch.stack(
        [(values[key].double() - references[key]).norm() / references[key].norm() for key in sorted(values)]
    )


def sample(values, stride):
    return torch.cat([values[key].flatten() for key in sorted(values)])[::stride].clone()


def same(one, other):
    numbers = all(torch.equal(one[kind], other[kind]) for kind in ("losses", "norms"))
    tensors = (
        torch.equal(value, other[kind][key])
        for kind in ("gradient", "weight")
        for key, value in one[kind].items()
    )
    return numbers and all(tensors)


def run_rank(rank, mesh_name, models, folder):
    """All cases of one mesh; rank 0 leaves them in `folder`."""
    torch.set_num_threads(1)
    sizes = MESHES[mesh_name]
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/{mesh_name}", rank=rank, world_size=math.prod(sizes)
    )
    axes = ("dp_replicate", "dp_shard")[-len(sizes):]
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=axes)
    for name in models:
        reference = train_in_float64(name) if rank == 0 and mesh_name == "1" else None
        results = {}
        for dtype, accumulation in itertools.product(DTYPES, ACCUMULATIONS):
            kept, given_up = (
                train_sharded(name, mesh, dtype, reshards, *ACCUMULATIONS[accumulation])
                for reshards in (False, True)
            )
            if not same(kept, given_up):
                raise SystemExit(f"{name} {mesh_name} {dtype} {accumulation} depends on resharding")
            results[f"{mesh_name}.{dtype}.{accumulation}"] = given_up
        if rank == 0:
            torch.save((reference, results), f"{folder}/{name}.{mesh_name}")
    dist.destroy_process_group()


def write(name, folder):
    out, reference = {}, None
    for mesh_name in MESHES:
        found, results = torch.load(f"{folder}/{name}.{mesh_name}", weights_only=False)
        reference = reference or found
        for case, result in results.items():
            report = []
            for kind in ("losses", "norms"):
                out[f"{case}.{kind}"] = result[kind]
                report.append((kind, (result[kind] / reference[kind] - 1).abs().max().item()))
            for kind in ("gradient", "weight"):
                far = distances(result[kind], reference[kind])
                out[f"{case}.{kind}_distance"] = far
                out[f"{case}.{kind}_sample"] = sample(result[kind], STRIDES[name])
                report.append((kind, far.max().item()))
            print(name, case, "from float64:", *(f"{kind} {value:.1e}" for kind, value in report))
    for kind in ("losses", "norms"):
        out[f"float64.{kind}"] = reference[kind]
    for kind in ("gradient", "weight"):
        for key, value in reference[kind].items():
            out[f"float64.{kind}.{key}"] = value.contiguous()
    save_file(out, os.path.join(ROOT, "fsdp2", f"{name}.safetensors"))


def main():
    models = sys.argv[1:] or list(MODELS)
    os.makedirs(os.path.join(ROOT, "fsdp2"), exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for mesh_name, sizes in MESHES.items():
            torch.multiprocessing.spawn(run_rank, (mesh_name, models, folder), nprocs=math.prod(sizes))
        for name in models:
            write(name, folder)
    with open(os.path.join(ROOT, "fsdp2", "SOURCE.md"), "w") as out:
        out.write(
            "# Where these files come from\n\n"
            "Made by `scripts/goldens/make_fsdp_goldens.py`, which says what each tensor is, with torch "
            f"{torch.__version__.split('+')[0]}, transformers {transformers.__version__} and "
            f"safetensors {safetensors.__version__}; Gloo on a CPU, one thread a rank.\n"
        )


if __name__ == "__main__":
    main()
