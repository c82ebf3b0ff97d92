#!/usr/bin/env python3
"""Makes tests/golden/precision/: what mixed-precision policies and autocast make of a training run
in PyTorch's FSDP2, over two processes with Gloo on the CPU.

Models, data and training are those of make_fsdp_goldens.py, one micro-batch a step:

  llama  tests/golden/llama_default; layers, both untied tables and the rest are units
  tied   the same with one table: layers and the rest are units, and the head takes its input in its
         weight's dtype (transformers' would refuse one that is wider)

A case is named <param>-<reduce>-<output>-<cast>, of MixedPrecisionPolicy's dtypes (float32, bfloat16
or absent) and cast_forward_inputs (cast or plain), with -autocast behind it where
torch.autocast("cpu", bfloat16) lies around the forward; `one-autocast` is that on one process
without FSDP. <model>.safetensors holds a float64 tensor for every case that PyTorch trains:

  losses [5], norms [5], then |x - float64's| / |float64's| of every gradient of the first step and
  of every weight after five, in order of their names

A case that PyTorch refuses (layers get float32 inputs for bfloat16 weights) is not there. Cases
that compute, reduce and pass on in float32 must be within 2e-6 of the run in float64; the script
stops when one is not. What that run gives is in tests/golden/fsdp2/llama.safetensors, and for
`tied` here, as float64.losses, .norms, .gradient.<name>, .weight.<name> (tensors in float32).

Run: python scripts/goldens/make_precision_goldens.py; needs torch, transformers, safetensors.
"""

import itertools
import os
import tempfile

import safetensors
import torch
import torch.distributed as dist
import torch.multiprocessing
import transformers
from make_fsdp_goldens import ROOT, Llama, distances, llama_in_float64, train
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "absent": None}


class Untied(Llama):
    autocasts = False

    def forward(self, tokens):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocasts):
            return super().forward(tokens)

    @property
    def units(self):
        return [*self.model.model.layers, self.model.model.embed_tokens, self.model.lm_head]


class Tied(Llama):
    autocasts = False

    def __init__(self):
        nn.Module.__init__(self)
        folder = os.path.join(ROOT, "llama_default")
        config = transformers.AutoConfig.from_pretrained(folder)
        config.tie_word_embeddings = True
        self.model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
        weights = load_file(os.path.join(folder, "model.safetensors"))
        del weights["lm_head.weight"]
        self.model.load_state_dict(weights, strict=False)

    def forward(self, tokens):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocasts):
            hidden = self.model.model(input_ids=tokens, use_cache=False).last_hidden_state
            weight = self.model.lm_head.weight
            return nn.functional.linear(hidden.to(weight.dtype), weight)


MODELS = {"llama": Untied, "tied": Tied}


def train_by(model_class, mesh, policy, autocasts):
    model = model_class()
    model.autocasts = autocasts
    if mesh is not None:
        for unit in model.units:
            fully_shard(unit, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
    try:
        return train(model, 1, True)
    except RuntimeError as error:
        if "dtype" not in str(error):
            raise
        return None


def cases():
    for param, reduce, output in itertools.product(DTYPES, repeat=3):
        for casts, autocasts in itertools.product((True, False), repeat=2):
            policy = MixedPrecisionPolicy(DTYPES[param], DTYPES[reduce], DTYPES[output], casts)
            name = f"{param}-{reduce}-{output}-{'cast' if casts else 'plain'}"
            yield name + ("-autocast" if autocasts else ""), policy, autocasts


def run_rank(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    for name, model_class in MODELS.items():
        results = {case: train_by(model_class, mesh, *how) for case, *how in cases()}
        if rank == 0:
            torch.save(results, f"{folder}/{name}")
    dist.destroy_process_group()


def write(name, folder):
    with llama_in_float64():
        exact = train(MODELS[name]().double(), 1, True)
    results = torch.load(f"{folder}/{name}", weights_only=False)
    results["one-autocast"] = train_by(MODELS[name], None, None, True)
    out = {}
    for case, result in results.items():
        if result is None:
            print(name, case, "refused")
            continue
        far = [distances(result[kind], exact[kind]) for kind in ("gradient", "weight")]
        losses = (result["losses"] / exact["losses"] - 1).abs().max().item()
        out[case] = torch.cat([result["losses"], result["norms"], *far]).double()
        print(name, case, f"losses {losses:.1e}", *(f"{kind.max().item():.1e}" for kind in far))
        if "bfloat16" not in case and "autocast" not in case:
            assert max(losses, *(kind.max().item() for kind in far)) < 2e-6, case
    if name == "tied":
        for kind in ("losses", "norms"):
            out[f"float64.{kind}"] = exact[kind]
        for kind in ("gradient", "weight"):
            for key, value in exact[kind].items():
                out[f"float64.{kind}.{key}"] = value.float().contiguous()
    save_file(out, os.path.join(ROOT, "precision", f"{name}.safetensors"))


def main():
    os.makedirs(os.path.join(ROOT, "precision"), exist_ok=True)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run_rank, (folder,), nprocs=2)
        for name in MODELS:
            write(name, folder)
    with open(os.path.join(ROOT, "precision", "SOURCE.md"), "w") as out:
        out.write(
            "# Where these files come from\n\n"
            "Made by `scripts/goldens/make_precision_goldens.py`, which says what each tensor is, with torch "
            f"{torch.__version__.split('+')[0]}, transformers {transformers.__version__} and "
            f"safetensors {safetensors.__version__}; Gloo on a CPU, one thread a rank.\n"
        )


if __name__ == "__main__":
    main()
