#!/usr/bin/env python3
"""Makes the goldens of LLaDA: tests/golden/llada*, and their entries of bfloat16.json.

usage: make_llada_goldens.py FOLDER

FOLDER holds the released code of GSAI-ML/LLaDA-8B-Base: modeling_llada.py and configuration_llada.py; run by the python that
scripts/setup_peers.sh prints. The folders hold what those of make_goldens.py hold: labels are the next tokens there as in all
folders, which attention sees here. What masked diffusion makes of batches is make_masked_diffusion_goldens.py's.
"""

import importlib.util
import json
import os
import sys
import types

import torch
from safetensors.torch import load_file

import make_goldens

SIZES = dict(
    architectures=["LLaDAModelLM"], model_type="llada", vocab_size=128, embedding_size=128, d_model=32, n_heads=4, n_kv_heads=4,
    n_layers=2, mlp_hidden_size=56, mlp_ratio=4, max_sequence_length=64, activation_type="silu", block_type="llama",
    block_group_size=1, layer_norm_type="rms", layer_norm_with_affine=True, attention_layer_norm=False,
    attention_layer_norm_with_affine=True, bias_for_layer_norm=False, include_bias=False, include_qkv_bias=False,
    multi_query_attention=None, rope=True, rope_full_precision=True, rope_theta=500000.0, alibi=False, flash_attention=False,
    input_emb_norm=False, scale_logits=False, weight_tying=False, attention_dropout=0.0, residual_dropout=0.0,
    embedding_dropout=0.0, init_fn="mitchell", init_std=0.02, init_cutoff_factor=None, init_device="cpu", rms_norm_eps=1e-5,
    mask_token_id=126, eos_token_id=2, pad_token_id=2, use_cache=False, dtype="float32",
)
MODELS = {
    "llada": SIZES,
    "llada_biases": dict(SIZES, include_bias=True, n_kv_heads=2, mlp_hidden_size=None, mlp_ratio=2, rope_theta=10000.0),
    "llada_qk_norm_tied": dict(
        SIZES, attention_layer_norm=True, include_qkv_bias=True, weight_tying=True, input_emb_norm=True, scale_logits=True,
        n_kv_heads=1, vocab_size=120, mask_token_id=119, activation_type="gelu",
    ),
}


def released_code(folder):
    """The module modeling_llada of a folder."""
    package = types.ModuleType("released_llada")
    package.__path__ = [folder]
    sys.modules["released_llada"] = package
    for name in ("configuration_llada", "modeling_llada"):
        path = os.path.join(folder, name + ".py")
        spec = importlib.util.spec_from_file_location("released_llada." + name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    return module


def new_model(code, config):
    options = {key: value for key, value in config.items() if key not in ("architectures", "model_type", "dtype")}
    return code.LLaDAModelLM(code.LLaDAConfig(**options)).float().eval()


def load(code, folder):
    """A folder's model."""
    with open(os.path.join(folder, "config.json")) as file:
        model = new_model(code, json.load(file))
    tensors = load_file(os.path.join(folder, "model.safetensors"))
    for key, parameter in model.named_parameters():
        parameter.data = tensors[key]
    return model


def fill(model):
    """Random weights large enough for every part to matter."""
    generator = torch.Generator().manual_seed(1234)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        is_norm = "norm.weight" in name or "ln_f.weight" in name
        parameter.data = 1 + 0.2 * noise if is_norm else (0.6 if "transformer.ff_out" in name else 0.15) * noise


def make(code, name):
    torch.manual_seed(0)
    model = new_model(code, MODELS[name])
    fill(model)
    make_goldens.make_folder_of(name, model, MODELS[name])


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    code = released_code(sys.argv[1])
    for name in MODELS:
        make(code, name)

    def rounded(name, dtype, attention):
        """The model of a folder, its weights rounded to bfloat16."""
        if attention != "eager":
            raise ValueError("the released code has one way of attention")
        model = load(code, os.path.join(make_goldens.ROOT, name))
        for parameter in model.parameters():
            parameter.data = parameter.data.to(torch.bfloat16).to(dtype)
        return model

    make_goldens.make_rounded = rounded
    make_goldens.make_bfloat16(list(MODELS))


if __name__ == "__main__":
    main()
