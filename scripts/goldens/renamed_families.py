"""Families that transformers has no class of, as those of its classes that compute the same under other names.

Their own code comes with the released files: Aquila, ChatGLM, EXAONE 3, InternLM 2 and 3, MiniCPM and Orion. InternLM 2
and ChatGLM keep q, k and v as the rows of one tensor, the first those of a head of keys behind one another.
"""

import json
import math
import pathlib
import re

import torch
from safetensors.torch import load_file, save_file

from model_folder import tensors_of

KEPT = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "max_position_embeddings", "initializer_range", "rms_norm_eps", "tie_word_embeddings",
        "pad_token_id", "bos_token_id", "eos_token_id", "rope_scaling", "rope_theta", "head_dim", "hidden_act", "dtype")
CHATGLM_NAMES = (("transformer.embedding.word_embeddings.", "model.embed_tokens."),
                 ("transformer.encoder.final_layernorm.", "model.norm."), ("transformer.output_layer.", "lm_head."),
                 ("transformer.encoder.layers.", "model.layers."), (".self_attention.dense.", ".self_attn.o_proj."),
                 (".self_attention.query_key_value.", ".self_attn.qkv."), (".mlp.dense_h_to_4h.", ".mlp.gate_up_proj."),
                 (".mlp.dense_4h_to_h.", ".mlp.down_proj."))
EXAONE_NAMES = (("transformer.wte.", "model.embed_tokens."), ("transformer.ln_f.", "model.norm."),
                ("transformer.h.", "model.layers."), (".attn.attention.out_proj.", ".self_attn.o_proj."),
                (".attn.attention.", ".self_attn."), (".mlp.c_fc_0.", ".mlp.gate_proj."), (".mlp.c_fc_1.", ".mlp.up_proj."),
                (".mlp.c_proj.", ".mlp.down_proj."), (".ln_1.", ".input_layernorm."), (".ln_2.", ".post_attention_layernorm."))
INTERNLM2_NAMES = (("model.tok_embeddings.", "model.embed_tokens."), ("output.", "lm_head."),
                   (".attention.wo.", ".self_attn.o_proj."), (".attention.wqkv.", ".self_attn.qkv."),
                   (".feed_forward.w1.", ".mlp.gate_proj."), (".feed_forward.w3.", ".mlp.up_proj."),
                   (".feed_forward.w2.", ".mlp.down_proj."), (".attention_norm.", ".input_layernorm."),
                   (".ffn_norm.", ".post_attention_layernorm."))


def internlm3_changes(own):
    if own["qkv_bias"] != own["bias"]:
        raise ValueError("Llama has biases of q, k, v and of the output, or neither")
    return dict(model_type="llama", attention_bias=own["bias"], mlp_bias=own["bias"])


def chatglm_changes(own):
    rope = dict(rope_type="default", rope_theta=10000.0 * own["rope_ratio"], partial_rotary_factor=0.5)
    kv_heads = own["multi_query_group_num"] if own["multi_query_attention"] else own["num_attention_heads"]
    return dict(model_type="glm", vocab_size=own["padded_vocab_size"], num_hidden_layers=own["num_layers"],
                intermediate_size=own["ffn_hidden_size"], head_dim=own["kv_channels"], num_key_value_heads=kv_heads,
                max_position_embeddings=own["seq_length"], rms_norm_eps=own["layernorm_epsilon"],
                attention_bias=own["add_qkv_bias"], rope_parameters=rope, pad_token_id=None)


def minicpm_changes(own):
    head_dim = own["hidden_size"] // own["num_attention_heads"]
    return dict(model_type="granite", embedding_multiplier=own["scale_emb"], attention_multiplier=1 / math.sqrt(head_dim),
                residual_multiplier=own["scale_depth"] / math.sqrt(own["num_hidden_layers"]),
                logits_scaling=own["hidden_size"] / own["dim_model_base"])


# model_type -> what the other class's config.json has besides, and tensors' names in both.
KINDS = {
    "chatglm": (chatglm_changes, CHATGLM_NAMES),
    "aquila": (lambda own: dict(model_type="llama"), ()),
    "exaone": (lambda own: dict(model_type="llama", num_hidden_layers=own["num_layers"],
                                rms_norm_eps=own["layer_norm_epsilon"]), EXAONE_NAMES),
    "internlm2": (lambda own: dict(model_type="llama", attention_bias=own["bias"]), INTERNLM2_NAMES),
    "internlm3": (internlm3_changes, ()),
    "minicpm": (minicpm_changes, ()),
    "orion": (lambda own: dict(model_type="stablelm", layer_norm_eps=own["rms_norm_eps"], partial_rotary_factor=1.0), ()),
}
ARCHITECTURES = dict(llama="LlamaForCausalLM", glm="GlmForCausalLM", granite="GraniteForCausalLM", stablelm="StableLmForCausalLM")


def peer_config(own):
    """The other class's config.json."""
    changes, _ = KINDS[own["model_type"]]
    out = {key: own[key] for key in KEPT if key in own}
    out.update(changes(own))
    out["architectures"] = [ARCHITECTURES[out["model_type"]]]
    return out


def renamed(name, pairs):
    for before, after in pairs:
        name = name.replace(before, after, 1) if name.startswith(before) or before.startswith(".") else name
    return name


def fused_groups(own):
    """In how many groups q, k and v lie behind one another, and a group's rows of queries and of k or v."""
    peer = peer_config(own)
    dim = peer.get("head_dim") or peer["hidden_size"] // peer["num_attention_heads"]
    q, kv = dim * peer["num_attention_heads"], dim * peer["num_key_value_heads"]
    count = peer["num_key_value_heads"] if own["model_type"] == "internlm2" else 1
    return count, q // count, kv // count


def peer_tensors(tensors, own):
    """The tensors by the other class's names."""
    _, pairs = KINDS[own["model_type"]]
    out = {}
    for name, tensor in tensors.items():
        name = renamed(name, pairs)
        fused = re.fullmatch(r"(.*\.self_attn\.)qkv(\..*)", name)
        if not fused:
            out[name] = tensor
            continue
        count, q, kv = fused_groups(own)
        groups = tensor.unflatten(0, (count, q + 2 * kv))
        for part, rows in zip("qkv", groups.split([q, kv, kv], dim=1)):
            out[f"{fused[1]}{part}_proj{fused[2]}"] = rows.flatten(0, 1).contiguous()
    return out


def own_tensors(tensors, own):
    """Tensors by the other class's names as the family's."""
    _, pairs = KINDS[own["model_type"]]
    fuses = own["model_type"] in ("internlm2", "chatglm")
    out = {}
    for name, tensor in tensors.items():
        part = re.fullmatch(r"(.*\.self_attn\.)([qkv])_proj(\..*)", name)
        if fuses and part:
            if part[2] != "q":
                continue
            parts = [tensors[f"{part[1]}{each}_proj{part[3]}"] for each in "qkv"]
            groups = [each.unflatten(0, (fused_groups(own)[0], -1)) for each in parts]
            name, tensor = f"{part[1]}qkv{part[3]}", torch.cat(groups, dim=1).flatten(0, 1)
        out[renamed(name, [(after, before) for before, after in pairs])] = tensor.contiguous()
    return out


def write_peer_folder(own_folder, folder):
    """Writes the other class's Hugging Face folder for one of a family here."""
    source, folder = pathlib.Path(own_folder), pathlib.Path(folder)
    own = json.loads((source / "config.json").read_text())
    save_file(peer_tensors(tensors_of(source), own), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(peer_config(own)))


def make_own_folder(folder, own):
    """Renames the tensors of the other class's folder and gives it this config.json."""
    folder = pathlib.Path(folder)
    path = folder / "model.safetensors"
    save_file(own_tensors(load_file(path), own), path, metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(own, indent=2) + "\n")
