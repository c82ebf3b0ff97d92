#!/usr/bin/env python3
"""Runs NeMo AutoModel's routers on random tokens and writes what tests/moe compares with:

  tests/moe/data/routers.json         per case: the router's options
  tests/moe/data/routers.safetensors  per case: inputs, weights by expert, load, aux loss, gradients
                                      and the correction after its update

Needs nemo_automodel 0.7.0, torch and safetensors (any Python environment; not used at run time).
"""

import json
import pathlib

import torch
from nemo_automodel.components.moe.config import MoEConfig
from nemo_automodel.components.moe.layers import Gate
from safetensors.torch import save_file

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "moe" / "data"
TOKENS, DIM, EXPERTS = 23, 12, 8

CASES = {
    "softmax": {"score_func": "softmax"},
    "softmax normed": {"score_func": "softmax", "norm_topk_prob": True},
    "softmax before topk": {"score_func": "softmax", "softmax_before_topk": True},
    "softmax before topk, normed": {
        "score_func": "softmax", "softmax_before_topk": True, "norm_topk_prob": True},
    "softmax with router bias": {"score_func": "softmax", "router_bias": True},
    "softmax_with_bias": {"score_func": "softmax_with_bias", "corrected": True},
    "softmax_with_bias, groups": {
        "score_func": "softmax_with_bias", "corrected": True, "n_expert_groups": 4,
        "n_limited_groups": 2, "norm_topk_prob": True, "route_scale": 2.5},
    "softmax_with_bias, groups, no correction": {
        "score_func": "softmax_with_bias", "n_expert_groups": 4, "n_limited_groups": 2},
    "sigmoid": {"score_func": "sigmoid", "norm_topk_prob": True},
    "sigmoid, groups": {"score_func": "sigmoid", "n_expert_groups": 4, "n_limited_groups": 2},
    "sigmoid corrected": {
        "score_func": "sigmoid", "corrected": True, "norm_topk_prob": True, "route_scale": 1.5,
        "n_expert_groups": 2, "n_limited_groups": 1},
    "sigmoid, corrected weights": {
        "score_func": "sigmoid", "corrected": True,
        "router_weight_uses_score_correction_bias": True},
    "sigmoid_with_bias": {"score_func": "sigmoid_with_bias", "corrected": True},
    "sigmoid_with_bias, groups": {
        "score_func": "sigmoid_with_bias", "corrected": True, "n_expert_groups": 4,
        "n_limited_groups": 2, "norm_topk_prob": True},
    "sigmoid_with_bias, groups, no correction": {
        "score_func": "sigmoid_with_bias", "n_expert_groups": 4, "n_limited_groups": 2},
    "sqrtsoftplus": {"score_func": "sqrtsoftplus", "corrected": True, "norm_topk_prob": True},
    "one expert": {"score_func": "softmax", "n_activated_experts": 1, "norm_topk_prob": True},
    "padding": {"score_func": "softmax", "norm_topk_prob": True, "padding": 6},
}


def build_gate(options):
    fields = {
        "n_routed_experts": EXPERTS, "n_shared_experts": 0, "n_activated_experts": 2,
        "n_expert_groups": 1, "n_limited_groups": 1, "train_gate": True,
        "gate_bias_update_factor": 0.0, "aux_loss_coeff": 0.5, "route_scale": 1.0, "dim": DIM,
        "inter_dim": 8, "moe_inter_dim": 8, "norm_topk_prob": False, "dtype": torch.float32}
    own = dict(options)
    own.pop("padding", None)
    if own.pop("corrected", False):
        fields["gate_bias_update_factor"] = 1e-2
    fields.update(own)
    gate = Gate(MoEConfig(**fields))
    gate.train()
    return gate


def run_case(index, options):
    generator = torch.Generator().manual_seed(index)

    def normal(*sizes):
        return torch.randn(sizes, generator=generator)

    gate = build_gate(options)
    tensors = {"x": normal(TOKENS, DIM), "weight": normal(EXPERTS, DIM) * 0.5,
               "probe": normal(TOKENS, EXPERTS)}
    with torch.no_grad():
        gate.weight.copy_(tensors["weight"])
        if gate.bias is not None:
            tensors["bias"] = normal(EXPERTS) * 0.3
            gate.bias.copy_(tensors["bias"])
        if gate.e_score_correction_bias is not None:
            tensors["correction"] = normal(EXPERTS) * 0.05
            gate.e_score_correction_bias.copy_(tensors["correction"])
    mask = torch.ones(TOKENS, dtype=torch.bool)
    if options.get("padding"):
        mask[-options["padding"]:] = False
    tensors["is_token"] = mask
    x = tensors["x"].clone().requires_grad_()
    weights, indices, aux_loss = gate(x, mask, None)
    by_expert = torch.zeros(TOKENS, EXPERTS).scatter(1, indices, weights) * mask.unsqueeze(1)
    (by_expert * tensors["probe"]).sum().backward()
    tensors["by_expert"] = by_expert.detach()
    tensors["aux_loss"] = aux_loss.detach().reshape(1)
    tensors["load"] = gate._compute_expert_load(indices, mask).float()
    tensors["grad.x"] = x.grad
    tensors["grad.weight"] = gate.weight.grad
    if "correction" in tensors:
        gate.update_bias()
        tensors["correction after"] = gate.e_score_correction_bias
    return tensors


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for index, (name, options) in enumerate(CASES.items()):
        for key, value in run_case(index, options).items():
            tensors[f"{name}/{key}"] = value.contiguous()
    save_file(tensors, str(OUT / "routers.safetensors"))
    (OUT / "routers.json").write_text(json.dumps(CASES, indent=1) + "\n")


if __name__ == "__main__":
    main()
