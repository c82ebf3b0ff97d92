"""LLaDA as transformers' Llama; transformers has no class of LLaDA's.

Both compute the same once the tensors have Llama's names and Llama's attention gets a mask that hides nothing
(ling_as_glm4.seeing_all). Norms of q and k, biases and scales are not Llama's: `is_llama` tells.
"""

import json
import pathlib

from safetensors.torch import save_file

from model_folder import tensors_of

NAMES = (
    ("model.transformer.wte.", "model.embed_tokens."),
    ("model.transformer.ln_f.", "model.norm."),
    ("model.transformer.ff_out.", "lm_head."),
    ("model.transformer.blocks.", "model.layers."),
    (".attn_norm.", ".input_layernorm."),
    (".ff_norm.", ".post_attention_layernorm."),
    (".q_proj.", ".self_attn.q_proj."),
    (".k_proj.", ".self_attn.k_proj."),
    (".v_proj.", ".self_attn.v_proj."),
    (".attn_out.", ".self_attn.o_proj."),
    (".ff_proj.", ".mlp.gate_proj."),
    (".up_proj.", ".mlp.up_proj."),
    (".ff_out.", ".mlp.down_proj."),
)


def is_llama(llada):
    """Whether Llama's class computes a config.json of LLaDA's."""
    others = ("include_bias", "include_qkv_bias", "attention_layer_norm", "input_emb_norm", "scale_logits", "weight_tying")
    return not any(llada.get(key) for key in others)


def llama_config(llada):
    """Llama's config.json for a LLaDA's."""
    return dict(
        model_type="llama", architectures=["LlamaForCausalLM"], sees_later_tokens=True, tie_word_embeddings=False,
        vocab_size=llada["embedding_size"] or llada["vocab_size"], hidden_size=llada["d_model"],
        intermediate_size=llada["mlp_hidden_size"] or llada["mlp_ratio"] * llada["d_model"],
        num_hidden_layers=llada["n_layers"], num_attention_heads=llada["n_heads"],
        num_key_value_heads=llada["n_kv_heads"] or llada["n_heads"], hidden_act=llada["activation_type"],
        max_position_embeddings=llada["max_sequence_length"], rms_norm_eps=llada["rms_norm_eps"],
        rope_parameters=dict(rope_type="default", rope_theta=llada["rope_theta"]),
    )


def renamed(tensors, names):
    out = {}
    for name, tensor in tensors.items():
        for ours, theirs in names:
            # The head and the MLPs' last projections share a name, behind different beginnings.
            if name.startswith(ours) or (ours[0] == "." and ours in name):
                name = name.replace(ours, theirs, 1)
        out[name] = tensor
    return out


def llada_tensors(llama):
    """Tensors by Llama's names as a LLaDA's."""
    return renamed(llama, [(theirs, ours) for ours, theirs in reversed(NAMES)])


def write_llada_as_llama(llada_folder, folder):
    """Writes Llama's Hugging Face folder for a LLaDA's."""
    source, folder = pathlib.Path(llada_folder), pathlib.Path(folder)
    config = json.loads((source / "config.json").read_text())
    save_file(renamed(tensors_of(source), NAMES), folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(llama_config(config)))
