#!/usr/bin/env python3
"""Makes the goldens of Nemotron NAS (DeciLM): tests/golden/decilm*, and their entries of bfloat16.json.

usage: make_decilm_goldens.py, by the python that scripts/setup_peers.sh prints.

The folders hold what those of make_goldens.py hold. The model is transformers' Llama whose layers lack what the
configuration says, each with its own number of heads of keys and its own width of the MLP.
"""

import copy
import os

import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaMLP

import make_goldens
from decilm_as_llama import llama_config, num_key_heads, widths


def block(heads, multiple):
    return dict(
        attention=dict(n_heads_in_group=heads, no_op=heads is None, replace_with_linear=False, sparsify=None,
                       window_length=None, num_sink_tokens=None, unshifted_sink=None,
                       use_prefill_window_in_sink_attention=None),
        ffn=dict(ffn_mult=multiple, no_op=multiple is None, replace_with_linear=False, sparsify=None),
    )


SIZES = dict(
    architectures=["DeciLMForCausalLM"], model_type="nemotron-nas", vocab_size=128, hidden_size=32, num_attention_heads=4,
    num_key_value_heads=None, intermediate_size=None, hidden_act="silu", max_position_embeddings=64,
    initializer_range=0.02, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2, tie_word_embeddings=False, dtype="float32",
    attention_bias=False, mlp_bias=False, rope_theta=500000.0,
    rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                      original_max_position_embeddings=16),
)
MODELS = {
    "decilm": dict(SIZES, block_configs=[block(2, 5.25), block(None, 13.0), block(4, None), block(1, 12.5)],
                   num_hidden_layers=4),
    "decilm_padding": dict(SIZES, block_configs=[block(None, 2.625), block(2, 13.0), block(2, 2.625)], num_hidden_layers=3,
                           rope_scaling=None, pad_token_id=3),
}


class Layer(torch.nn.Module):
    """A layer of what the configuration says."""

    def __init__(self, config, index, num_keys, width, norm):
        super().__init__()
        if num_keys:
            own = copy.deepcopy(config)
            own.num_key_value_heads = num_keys
            self.input_layernorm = norm()
            self.self_attn = LlamaAttention(own, index)
        if width:
            own = copy.deepcopy(config)
            own.intermediate_size = width
            self.post_attention_layernorm = norm()
            self.mlp = LlamaMLP(own)

    def forward(self, hidden_states, **others):
        if hasattr(self, "self_attn"):
            hidden_states = hidden_states + self.self_attn(hidden_states=self.input_layernorm(hidden_states), **others)[0]
        if hasattr(self, "mlp"):
            hidden_states = hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))
        return hidden_states


def new_model(name, attention="eager"):
    options = MODELS[name]
    skipped = ("model_type", "architectures", "dtype")
    config = LlamaConfig(**{key: value for key, value in llama_config(options).items() if key not in skipped})
    config._attn_implementation = attention
    model = LlamaForCausalLM(config)
    norm = type(model.model.norm)
    for index, width in enumerate(widths(options)):
        model.model.layers[index] = Layer(config, index, num_key_heads(options, index), width,
                                          lambda: norm(config.hidden_size, eps=config.rms_norm_eps))
    return model.float().eval()


def make(name):
    torch.manual_seed(0)
    model = new_model(name)
    make_goldens.fill(model)
    make_goldens.make_folder_of(name, model, MODELS[name])


def rounded(name, dtype, attention):
    """The model of a folder, its weights rounded to bfloat16."""
    model = new_model(name, attention)
    tensors = load_file(os.path.join(make_goldens.ROOT, name, "model.safetensors"))
    for key, parameter in model.named_parameters():
        parameter.data = tensors[key].to(torch.bfloat16).to(dtype)
    return model


def main():
    torch.set_num_threads(1)
    for name in MODELS:
        make(name)
    make_goldens.make_rounded = rounded
    make_goldens.make_bfloat16(list(MODELS))


if __name__ == "__main__":
    main()
