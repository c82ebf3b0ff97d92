"""Baichuan 2 7B as transformers' Llama; transformers has no class of Baichuan's.

Both compute the same once q, k and v are tensors of their own and the head's rows are divided by their lengths.
"""

import json
import pathlib
import re

import torch
from safetensors.torch import save_file

from model_folder import tensors_of

HEAD = "lm_head.weight"


def llama_config(baichuan):
    """Llama's config.json for a Baichuan's."""
    kept = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "hidden_act",
            "max_position_embeddings", "initializer_range", "rms_norm_eps", "pad_token_id", "bos_token_id", "eos_token_id",
            "dtype")
    out = {key: baichuan[key] for key in kept if key in baichuan}
    out.update(model_type="llama", architectures=["LlamaForCausalLM"], tie_word_embeddings=False)
    return out


def llama_tensors(baichuan):
    """A Baichuan's tensors by Llama's names."""
    out = {}
    for name, tensor in baichuan.items():
        fused = re.fullmatch(r"(.*\.)W_pack(\..*)", name)
        if fused:
            for part, rows in zip("qkv", tensor.chunk(3)):
                out[f"{fused[1]}{part}_proj{fused[2]}"] = rows.contiguous()
        else:
            out[name] = torch.nn.functional.normalize(tensor.float()).to(tensor.dtype) if name == HEAD else tensor
    return out


def baichuan_tensors(llama):
    """The names and shapes of a Baichuan's tensors, of Llama's; the head is as it lies there."""
    out = {}
    for name, tensor in llama.items():
        part = re.fullmatch(r"(.*\.)([qkv])_proj(\..*)", name)
        if part and part[2] == "q":
            out[f"{part[1]}W_pack{part[3]}"] = torch.cat([llama[f"{part[1]}{each}_proj{part[3]}"] for each in "qkv"])
        elif not part:
            out[name] = tensor
    return out


def write_llama_folder(baichuan_folder, folder):
    """Writes Llama's Hugging Face folder for a Baichuan's."""
    source, folder = pathlib.Path(baichuan_folder), pathlib.Path(folder)
    config = json.loads((source / "config.json").read_text())
    tensors = tensors_of(source)
    save_file(llama_tensors(tensors), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(llama_config(config)))
