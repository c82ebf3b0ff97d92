#!/usr/bin/env python3
"""Makes tests/optim/data/muon.safetensors: what torch.optim.Muon and dion.Muon compute on the CPU.

  NAME                 float32, each tensor before the first step
  NAME.gradients       float32 [steps, ...]

and for each case CASE, after the last step

  CASE.NAME            the peer's tensor; its orthogonalization is in bfloat16
  CASE.NAME.exact      the same formula in float64, written here

Run: python scripts/goldens/make_muon_goldens.py DION, by the python that scripts/setup_peers.sh prints; DION is a copy of
github.com/microsoft/dion.
"""

import math
import os
import sys

os.environ["TORCHDYNAMO_DISABLE"] = "1"
import torch
from safetensors.torch import save_file

sys.path.insert(0, sys.argv[1])
from dion import Muon as DionMuon

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
OUT = os.path.join(ROOT, "tests", "optim", "data", "muon.safetensors")
NUM_STEPS = 4
LR = 2e-2
SHAPES = {"tall": (24, 16), "wide": (16, 40), "square": (20, 20), "bias": (24,), "embedding": (30, 16), "lm_head": (30, 16)}
POLAR = [
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
]

TORCH_CASES = {
    "torch": dict(),
    "torch_rms": dict(momentum=0.9, nesterov=False, weight_decay=0.0, adjust_lr_fn="match_rms_adamw", ns_steps=3),
}
DION_CASES = {
    "dion": dict(mu=0.95, weight_decay=0.1, adjust_lr="spectral_norm"),
    "dion_rms": dict(mu=0.8, weight_decay=0.0, adjust_lr="rms_norm", nesterov=True),
}
SCALAR = dict(lr=3e-3, beta1=0.9, beta2=0.999, epsilon=1e-8)
EMBED_LR = 1e-3


def orthogonal(matrix, coefficients, factor, eps, is_eps_added):
    norm = matrix.norm() * factor
    x = matrix / (norm + eps if is_eps_added else norm.clamp(min=eps))
    for a, b, c in coefficients:
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def exact_matrix(start, gradients, rule):
    x, momentum = start.double(), torch.zeros_like(start, dtype=torch.float64)
    rows, columns = start.shape
    for g in gradients.double():
        share = 1 - rule["mu"] if rule["averaged"] else 1
        momentum = rule["mu"] * momentum + share * g
        update = rule["mu"] * momentum + share * g if rule["nesterov"] else momentum
        update = orthogonal(update, rule["coefficients"], rule["factor"], rule["eps"], not rule["averaged"])
        ratio = {"spectral": math.sqrt(rows / columns), "rms": 0.2 * math.sqrt(max(rows, columns)),
                 "original": math.sqrt(max(1, rows / columns))}[rule["ratio"]]
        x = x * (1 - LR * rule["wd"]) - LR * ratio * update
    return x


def exact_adamw(start, gradients, lr, wd):
    x = start.double().clone().requires_grad_()
    optimizer = torch.optim.AdamW([x], lr=lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=wd)
    for g in gradients.double():
        x.grad = g
        optimizer.step()
    return x.detach()


torch.set_num_threads(1)
torch.manual_seed(9)
start = {name: torch.randn(shape) for name, shape in SHAPES.items()}
gradients = {name: torch.randn(NUM_STEPS, *shape) * 0.1 for name, shape in SHAPES.items()}
out = dict(start) | {f"{name}.gradients": g for name, g in gradients.items()}
MATRICES = ["tall", "wide", "square"]


def train(case, parameters, optimizer, exact):
    for step in range(NUM_STEPS):
        for name, parameter in parameters.items():
            parameter.grad = gradients[name][step].clone()
        optimizer.step()
    for name, parameter in parameters.items():
        peer = parameter.detach()
        out[f"{case}.{name}"] = peer.clone()
        out[f"{case}.{name}.exact"] = exact[name]
        print(case, name, "peer's distance from float64:", (peer.double() - exact[name]).abs().max().item())


for case, options in TORCH_CASES.items():
    parameters = {name: torch.nn.Parameter(start[name].clone()) for name in MATRICES}
    optimizer = torch.optim.Muon(parameters.values(), lr=LR, **options)
    group = optimizer.param_groups[0]
    rule = dict(mu=group["momentum"], nesterov=group["nesterov"], wd=group["weight_decay"], averaged=True, factor=1.0,
                eps=group["eps"], coefficients=[group["ns_coefficients"]] * group["ns_steps"],
                ratio="rms" if group["adjust_lr_fn"] else "original")
    train(case, parameters, optimizer, {name: exact_matrix(start[name], gradients[name], rule) for name in MATRICES})

for case, options in DION_CASES.items():
    parameters = {name: torch.nn.Parameter(value.clone()) for name, value in start.items()}
    wd = options["weight_decay"]
    groups = [
        dict(params=[parameters[name] for name in MATRICES]),
        dict(params=[parameters["bias"]], algorithm="adamw", weight_decay=wd, **SCALAR),
        dict(params=[parameters["embedding"]], algorithm="adamw", weight_decay=0.0, **SCALAR | dict(lr=EMBED_LR)),
        dict(params=[parameters["lm_head"]], algorithm="adamw", weight_decay=0.0, **SCALAR | dict(lr=LR / math.sqrt(16))),
    ]
    rule = dict(mu=options["mu"], nesterov=options.get("nesterov", False), wd=wd, averaged=False, factor=1.02, eps=1e-8,
                coefficients=POLAR, ratio="rms" if options["adjust_lr"] == "rms_norm" else "spectral")
    exact = {name: exact_matrix(start[name], gradients[name], rule) for name in MATRICES}
    exact["bias"] = exact_adamw(start["bias"], gradients["bias"], SCALAR["lr"], wd)
    exact["embedding"] = exact_adamw(start["embedding"], gradients["embedding"], EMBED_LR, 0.0)
    exact["lm_head"] = exact_adamw(start["lm_head"], gradients["lm_head"], LR / math.sqrt(16), 0.0)
    train(case, parameters, DionMuon(groups, lr=LR, **options), exact)

save_file({key: value.contiguous() for key, value in out.items()}, OUT, {"made_by": f"torch {torch.__version__.split('+')[0]}, dion 0a059a4"})
