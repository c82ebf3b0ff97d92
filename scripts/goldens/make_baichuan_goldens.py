#!/usr/bin/env python3
"""Makes the goldens of Baichuan 2: tests/golden/baichuan*, and their entries of bfloat16.json.

usage: make_baichuan_goldens.py WHEEL_FOLDER

WHEEL_FOLDER holds NeMo AutoModel 0.7.0, unpacked; run by the python that scripts/setup_peers.sh prints. The folders hold
what those of make_goldens.py hold. The numbers are those of AutoModel's own model in training mode (it has no dropout): in
evaluation it would overwrite the head's weight by its rows of length 1, of which the gradient is another.
"""

import json
import os
import sys

import torch
from safetensors.torch import load_file

import make_goldens

SIZES = dict(
    architectures=["BaichuanForCausalLM"], model_type="baichuan", vocab_size=128, hidden_size=32, intermediate_size=56,
    num_hidden_layers=2, num_attention_heads=4, hidden_act="silu", max_position_embeddings=64, model_max_length=64,
    initializer_range=0.02, rms_norm_eps=1e-6, bos_token_id=1, eos_token_id=2, tie_word_embeddings=False, z_loss_weight=0,
    dtype="float32",
)
MODELS = {"baichuan": dict(SIZES, pad_token_id=0), "baichuan_padding": dict(SIZES, pad_token_id=3, rms_norm_eps=1e-5)}


def new_model(name):
    from nemo_automodel.components.models.baichuan.configuration import BaichuanConfig
    from nemo_automodel.components.models.baichuan.model import BaichuanForCausalLM

    class Model(BaichuanForCausalLM):
        """Without the caches of keys, which training has no use for."""

        def eval(self):
            return self.train()

    options = {key: value for key, value in MODELS[name].items() if key not in ("architectures", "model_type", "dtype")}
    return Model(BaichuanConfig(**options)).float().train()


def fill(model):
    """Random weights large enough for every part to matter."""
    generator = torch.Generator().manual_seed(1234)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data = 1 + 0.2 * noise if "norm" in name else (0.6 if "lm_head" in name else 0.15) * noise


def make(name):
    torch.manual_seed(0)
    model = new_model(name)
    fill(model)
    make_goldens.make_folder_of(name, model, MODELS[name])


def rounded(name, dtype, attention):
    """The model of a folder, its weights rounded to bfloat16."""
    if attention != "eager":
        raise ValueError("upstream's has one way of attention")
    model = new_model(name)
    tensors = load_file(os.path.join(make_goldens.ROOT, name, "model.safetensors"))
    for key, parameter in model.named_parameters():
        parameter.data = tensors[key].to(torch.bfloat16).to(dtype)
    return model


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.path.insert(0, sys.argv[1])
    torch.set_num_threads(1)
    for name in MODELS:
        make(name)
    make_goldens.make_rounded = rounded
    make_goldens.make_bfloat16(list(MODELS))


if __name__ == "__main__":
    main()
