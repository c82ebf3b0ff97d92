"""Ling 2.0 (BailingMoeV2) as GLM 4.5's class of transformers, which has no class of Ling's.

Both compute the same: per-head norms of q and k, rotation of a part of each head, sigmoid scores with a
correction for the choice in groups, chosen scores rescaled, shared experts, dense first layers. Ling
names its tensors otherwise and keeps q, k and v as the rows of one. GLM 4.5 has no bias of attention's
output, so a Ling with `use_bias` cannot be held against it. LLaDA 2 is a Ling whose attention sees later
tokens too: GLM 4.5's gets a mask that hides nothing (`seeing_all`).
"""

import json
import pathlib
import re

import torch
from safetensors.torch import load_file, save_file

from model_folder import tensors_of

CONFIG_KEYS = {"num_experts": "n_routed_experts", "num_shared_experts": "n_shared_experts", "use_qkv_bias": "attention_bias"}
NAMES = {
    "model.word_embeddings.": "model.embed_tokens.",
    ".attention.dense.": ".self_attn.o_proj.",
    ".attention.query_layernorm.": ".self_attn.q_norm.",
    ".attention.key_layernorm.": ".self_attn.k_norm.",
    ".mlp.gate.expert_bias": ".mlp.gate.e_score_correction_bias",
}


def glm_config(ling):
    """GLM 4.5's config.json for a Ling's."""
    glm = {CONFIG_KEYS.get(key, key): value for key, value in ling.items()}
    rope = {"rope_type": "default", "rope_theta": glm.pop("rope_theta")}
    rope["partial_rotary_factor"] = glm.pop("partial_rotary_factor", 1.0)
    if glm.get("rotary_dim"):
        rope["partial_rotary_factor"] = glm.pop("rotary_dim") / glm["head_dim"]
    if ling["model_type"] == "llada2_moe":
        glm["sees_later_tokens"] = True
    glm.update(rope_parameters=rope, model_type="glm4_moe", architectures=["Glm4MoeForCausalLM"])
    return glm


def seeing_all(model, ids):
    """What a forward of a model gets besides its ids: a mask that hides nothing, where its config asks for it."""
    if not getattr(model.config, "sees_later_tokens", False):
        return {}
    dtype = next(model.parameters()).dtype
    return {"attention_mask": torch.zeros(ids.shape[0], 1, ids.shape[1], ids.shape[1], dtype=dtype)}


def glm_tensors(ling, config):
    """The tensors of a Ling by GLM 4.5's names."""
    q = config["num_attention_heads"] * config["head_dim"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    out = {}
    for name, tensor in ling.items():
        fused = re.fullmatch(r"(.*\.)attention\.query_key_value(\..*)", name)
        if fused:
            for part, rows in zip("qkv", tensor.split([q, kv, kv])):
                out[f"{fused[1]}self_attn.{part}_proj{fused[2]}"] = rows.contiguous()
            continue
        for theirs, ours in NAMES.items():
            name = name.replace(theirs, ours)
        out[name] = tensor
    return out


def ling_tensors(glm):
    """Tensors by GLM 4.5's names as a Ling's."""
    out = {}
    for name, tensor in glm.items():
        part = re.fullmatch(r"(.*\.)self_attn\.([qkv])_proj(\..*)", name)
        if part:
            if part[2] == "q":
                rows = [glm[f"{part[1]}self_attn.{each}_proj{part[3]}"] for each in "qkv"]
                out[f"{part[1]}attention.query_key_value{part[3]}"] = torch.cat(rows)
            continue
        for theirs, ours in NAMES.items():
            name = name.replace(ours, theirs)
        out[name] = tensor
    return out


def write_glm_folder(ling_folder, folder):
    """Writes GLM 4.5's Hugging Face folder for a Ling's."""
    source, folder = pathlib.Path(ling_folder), pathlib.Path(folder)
    config = json.loads((source / "config.json").read_text())
    tensors = tensors_of(source)
    save_file(glm_tensors(tensors, config), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(glm_config(config)))


def make_ling_folder(folder, config):
    """Renames the tensors of GLM 4.5's folder and gives it this config.json."""
    folder = pathlib.Path(folder)
    path = folder / "model.safetensors"
    save_file(ling_tensors(load_file(path)), path, metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
