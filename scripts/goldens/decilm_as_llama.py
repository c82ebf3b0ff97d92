"""Nemotron NAS (DeciLM) as transformers' Llama; transformers has no class of it.

A layer that lacks attention or the MLP is one whose last projection is zero; where heads of keys are shared by more queries,
each is repeated; a narrower MLP is one with zeros. So a Llama computes the same.
"""

import json
import pathlib

import torch
from safetensors.torch import save_file

from model_folder import tensors_of

KEPT = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "hidden_act", "max_position_embeddings",
        "initializer_range", "rms_norm_eps", "pad_token_id", "bos_token_id", "eos_token_id", "tie_word_embeddings",
        "rope_theta", "rope_scaling", "rope_parameters", "dtype")


def mlp_width(ffn, hidden_size):
    """The width of a layer's MLP, 0 without one."""
    if ffn.get("no_op"):
        return 0
    return -(-int(2 * ffn["ffn_mult"] * hidden_size / 3) // 256) * 256


def widths(config):
    return [mlp_width(block["ffn"], config["hidden_size"]) for block in config["block_configs"]]


def num_key_heads(config, layer):
    """Heads of keys of a layer, 0 without attention."""
    attention = config["block_configs"][layer]["attention"]
    return 0 if attention.get("no_op") else config["num_attention_heads"] // attention["n_heads_in_group"]


def llama_config(decilm):
    """Llama's config.json for a DeciLM's: as many heads of keys as of queries, and the widest MLP."""
    out = {key: decilm[key] for key in KEPT if key in decilm}
    out.update(model_type="llama", architectures=["LlamaForCausalLM"], intermediate_size=max(widths(decilm)),
               num_key_value_heads=decilm["num_attention_heads"])
    return out


def repeated_heads(rows, num_heads, head_dim):
    heads = rows.view(-1, head_dim, rows.shape[-1])
    return heads.repeat_interleave(num_heads // heads.shape[0], 0).reshape(num_heads * head_dim, -1).contiguous()


def widened(tensor, dim, size):
    """The tensor with zeros behind it."""
    shape = list(tensor.shape)
    shape[dim] = size - shape[dim]
    return torch.cat([tensor, tensor.new_zeros(shape)], dim).contiguous()


def llama_tensors(decilm, config):
    """A DeciLM's tensors as those of a Llama that computes the same."""
    hidden, num_heads = config["hidden_size"], config["num_attention_heads"]
    head_dim, width = hidden // num_heads, max(widths(config))
    out = {name: tensor for name, tensor in decilm.items() if ".layers." not in name}
    zeros = next(iter(out.values())).new_zeros
    for layer in range(config["num_hidden_layers"]):
        names = {
            "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,),
            **{f"self_attn.{part}_proj": (hidden, hidden) for part in "qkvo"},
            "mlp.gate_proj": (width, hidden), "mlp.up_proj": (width, hidden), "mlp.down_proj": (hidden, width),
        }
        for part, shape in names.items():
            name = f"model.layers.{layer}.{part}.weight"
            tensor = decilm.get(name)
            if tensor is None:
                tensor = zeros(shape)
            elif part in ("self_attn.k_proj", "self_attn.v_proj"):
                tensor = repeated_heads(tensor, num_heads, head_dim)
            elif part.startswith("mlp."):
                tensor = widened(tensor, 1 if "down" in part else 0, width)
            out[name] = tensor
    return out


def decilm_shapes(config):
    """The names and shapes of a DeciLM's tensors."""
    hidden, head_dim = config["hidden_size"], config["hidden_size"] // config["num_attention_heads"]
    out = {"model.embed_tokens.weight": (config["vocab_size"], hidden), "model.norm.weight": (hidden,)}
    if not config.get("tie_word_embeddings"):
        out["lm_head.weight"] = (config["vocab_size"], hidden)
    for layer, width in enumerate(widths(config)):
        own = {}
        if num_keys := num_key_heads(config, layer):
            rows = num_keys * head_dim
            own = {"input_layernorm": (hidden,), "self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (rows, hidden),
                   "self_attn.v_proj": (rows, hidden), "self_attn.o_proj": (hidden, hidden)}
        if width:
            own.update({"post_attention_layernorm": (hidden,), "mlp.gate_proj": (width, hidden),
                        "mlp.up_proj": (width, hidden), "mlp.down_proj": (hidden, width)})
        out.update({f"model.layers.{layer}.{part}.weight": shape for part, shape in own.items()})
    return out


def write_llama_folder(decilm_folder, folder):
    """Writes Llama's Hugging Face folder for a DeciLM's."""
    source, folder = pathlib.Path(decilm_folder), pathlib.Path(folder)
    config = json.loads((source / "config.json").read_text())
    save_file(llama_tensors(tensors_of(source), config), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(llama_config(config)))
