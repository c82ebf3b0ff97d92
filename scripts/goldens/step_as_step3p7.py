"""Step 3.5 by the text model of transformers' Step 3.7, which has the same layers; transformers has no Step 3.5 of its own.

Its tensors have other names there, and the experts' gates and what they multiply are one tensor.
"""

import json
import pathlib
import types

import torch
from transformers import Step3p7TextConfig, Step3p7TextModel

from model_folder import tensors_of

NAMES = (
    (".mlp.gate.weight", ".moe.gate.weight"),
    (".mlp.gate.e_score_correction_bias", ".moe.router_bias"),
    (".mlp.experts.down_proj", ".moe.down_proj.weight"),
    (".mlp.shared_experts.", ".share_expert."),
)
GATE_UP = ".mlp.experts.gate_up_proj"
# Keys of a released config.json whose meaning the text model's class does not know.
OWN_KEYS = ("architectures", "model_type", "yarn_only_types", "use_moe_router_bias", "need_fp32_gate", "dtype",
            "moe_router_activation", "use_head_wise_attn_gate", "transformers_version", "use_rope_layers")


def is_computed(written):
    """Whether the text model computes what this config.json says; it has neither softmax scores nor layers without gates,
    and rotates every layer."""
    rotates_all = all(written.get("use_rope_layers") or [True])
    return bool(written.get("moe_router_activation") == "sigmoid" and written.get("use_head_wise_attn_gate") and rotates_all)


class StepForCausalLM(torch.nn.Module):
    """The text model with a head."""

    def __init__(self, written, attention="eager"):
        super().__init__()
        options = {key: value for key, value in written.items() if key not in OWN_KEYS}
        self.config = Step3p7TextConfig(**options)
        self.config._attn_implementation = attention
        self.config._experts_implementation = "eager"  # the others take no float64
        self.written = written
        self.model = Step3p7TextModel(self.config)
        self.lm_head = torch.nn.Linear(self.config.hidden_size, self.config.vocab_size, bias=False)

    def forward(self, input_ids, attention_mask=None, use_cache=False):
        hidden = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=use_cache).last_hidden_state
        return types.SimpleNamespace(logits=self.lm_head(hidden))


def released_tensors(tensors, has_bias=True):
    """Tensors by the text model's names, with a head, by a release's."""
    out = {}
    for name, tensor in tensors.items():
        if name.endswith(GATE_UP):
            gate, up = tensor.chunk(2, dim=1)
            out[name.replace(GATE_UP, ".moe.gate_proj.weight")] = gate
            out[name.replace(GATE_UP, ".moe.up_proj.weight")] = up
            continue
        if name.endswith("e_score_correction_bias") and not has_bias:
            continue
        for theirs, released in NAMES:
            name = name.replace(theirs, released)
        out[name] = tensor
    return {name: tensor.detach().clone().contiguous() for name, tensor in out.items()}


def text_model_tensors(released):
    """The inverse."""
    out = {}
    for name, tensor in released.items():
        if name.endswith(".moe.gate_proj.weight"):
            up = released[name.replace("gate_proj", "up_proj")]
            out[name.replace(".moe.gate_proj.weight", GATE_UP)] = torch.cat([tensor, up], dim=1)
            continue
        if name.endswith(".moe.up_proj.weight"):
            continue
        for theirs, released_name in NAMES:
            name = name.replace(released_name, theirs)
        out[name] = tensor
    return out


def load_step(folder, dtype=torch.float32, attention="eager"):
    """The model of a folder. Tensors of layers that predict further tokens are left out; others must fit."""
    folder = pathlib.Path(folder)
    written = json.loads((folder / "config.json").read_text())
    model = StepForCausalLM(written, attention)
    tensors = tensors_of(folder)
    first, count = written["num_hidden_layers"], written.get("num_nextn_predict_layers", 0)
    behind = tuple(f"model.layers.{first + i}." for i in range(count))
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(behind or ("\0",))}
    missing, unexpected = model.load_state_dict(text_model_tensors(tensors), strict=False)
    if not written.get("use_moe_router_bias", False):
        missing = [name for name in missing if not name.endswith("e_score_correction_bias")]
    if missing or unexpected:
        raise ValueError(f"missing {missing}, unexpected {unexpected}")
    for name, tensor in list(model.named_parameters()):
        tensor.data = tensor.data.to(dtype)
    return model.eval()
