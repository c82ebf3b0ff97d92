#!/usr/bin/env python3
"""Makes the goldens of Step 3.5: tests/golden/step3p5*, and their entries of bfloat16.json.

usage: make_step_goldens.py WHEEL_FOLDER

WHEEL_FOLDER holds NeMo AutoModel 0.7.0, unpacked; run by the python that scripts/setup_peers.sh prints. The folders hold
what those of make_goldens.py hold. The numbers are those of the text model of transformers' Step 3.7, which has Step 3.5's
layers (step_as_step3p7.py); of what it lacks (scores by softmax, attention without gates, layers without rotation, other
numbers of keys' heads), those of AutoModel's own model.
"""

import json
import os
import sys
import types

import torch
from safetensors.torch import load_file, save_file

import make_goldens
from step_as_step3p7 import StepForCausalLM, load_step, released_tensors

KINDS = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
SIZES = dict(
    architectures=["Step3p5ForCausalLM"], model_type="step3p5", vocab_size=128, hidden_size=32, intermediate_size=56,
    num_hidden_layers=4, num_attention_heads=4, num_attention_groups=2, head_dim=16, max_position_embeddings=64,
    rms_norm_eps=1e-5, moe_num_experts=6, moe_top_k=3, moe_intermediate_size=24, bos_token_id=0, eos_token_id=2,
    pad_token_id=3, tie_word_embeddings=False, dtype="float32",
)
# Lists are as long as the released ones: the layers, then those that predict further tokens.
MODELS = {
    "step3p5": dict(
        SIZES, num_nextn_predict_layers=2, layer_types=KINDS + ["sliding_attention"] * 2, sliding_window=7,
        attention_other_setting=dict(attention_type="sliding_attention", num_attention_heads=6, num_attention_groups=2,
                                     head_dim=16),
        rope_theta=[50000.0, 10000.0, 10000.0, 50000.0, 10000.0, 10000.0],
        partial_rotary_factors=[0.5, 1.0, 1.0, 0.5, 1.0, 1.0],
        rope_scaling=dict(rope_type="llama3", factor=2.0, low_freq_factor=1.0, high_freq_factor=32.0,
                          original_max_position_embeddings=16),
        yarn_only_types=["full_attention"], use_rope_layers=[], moe_layers_enum="1,2,3", share_expert_dim=20,
        moe_router_activation="sigmoid", use_moe_router_bias=True, moe_router_scaling_factor=3.0, need_fp32_gate=True,
        use_head_wise_attn_gate=True, swiglu_limits=[0.0, 0.0, 0.4, None, 0.0, 0.0],
        swiglu_limits_shared=[0.3, 0.0, 0.0, 0.5, 0.0, 0.0],
    ),
    "step3p5_no_bias_padding": dict(
        SIZES, layer_types=KINDS, sliding_window=8, rope_theta=10000.0, moe_layers_enum=[0, 2, 3], share_expert_dims=28,
        moe_router_activation="sigmoid", use_head_wise_attn_gate=True,
    ),
    "step3p5_softmax": dict(
        SIZES, pad_token_id=None, layer_types=KINDS, sliding_window=32,  # longer than the batch: there it has no windows
        attention_other_setting=dict(num_attention_heads=6, num_attention_groups=3), rope_theta=[50000.0] + [10000.0] * 3,
        partial_rotary_factors=[0.5, 1.0, 1.0, 1.0], use_rope_layers=[True, True, False, True], moe_layers_enum=None,
        share_expert_dim=20, moe_router_activation="softmax", moe_router_scaling_factor=1.5,
        swiglu_limits_shared=[0.3, 0.0, 0.5, 0.0],
    ),
}
OF_UPSTREAM = ("step3p5_softmax",)


class UpstreamModel(torch.nn.Module):
    """AutoModel's model, whose parameters have the names of its files where they are no experts'."""

    def __init__(self, written, dtype):
        super().__init__()
        from nemo_automodel.components.models.common.utils import BackendConfig
        from nemo_automodel.components.models.step3p5.model import Step3p5ForCausalLM

        config = types.SimpleNamespace(**written, rope_parameters=dict(rope_type="default", rope_theta=10000.0))
        config.torch_dtype = dtype
        backend = BackendConfig(attn="sdpa", linear="torch", rms_norm="torch", experts="torch", dispatcher="torch",
                                rope_fusion=False, enable_hf_state_dict_adapter=True)
        self.config = config
        self.inner = Step3p5ForCausalLM(config, backend=backend).to(dtype).eval()

    def forward(self, input_ids, attention_mask=None, use_cache=False):
        return self.inner(input_ids, attention_mask=attention_mask)

    def released(self, tensors):
        out = self.inner.state_dict_adapter.to_hf({key.removeprefix("inner."): value for key, value in tensors.items()})
        return {key: value.detach().clone().contiguous() for key, value in out.items()}


def fill(model):
    """Random weights large enough for every part to matter; norms multiply by 1 + weight."""
    generator = torch.Generator().manual_seed(1234)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data = (0.2 if "norm" in name else 0.15) * noise
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            has_bias = model.written.get("use_moe_router_bias", False)
            buffer.data = 0.3 * torch.randn(buffer.shape, generator=generator) * has_bias


def new_model(name, dtype=torch.float32, attention="eager"):
    written = MODELS[name]
    if name in OF_UPSTREAM:
        return UpstreamModel(written, dtype)
    return StepForCausalLM(written, attention).eval()


def released(name, model, tensors):
    if name in OF_UPSTREAM:
        return model.released(tensors)
    return released_tensors(tensors, MODELS[name].get("use_moe_router_bias", False))


class TextConfig:
    """What make_goldens' batches read of a configuration."""

    def __init__(self, written):
        self.vocab_size, self.pad_token_id = written["vocab_size"], written["pad_token_id"]

    def get_text_config(self):
        return self


def make(name):
    torch.manual_seed(0)
    model = new_model(name)
    fill(model)
    folder = make_goldens.new_folder(name, MODELS[name])
    save_file(released(name, model, model.state_dict()), os.path.join(folder, "model.safetensors"),
              metadata=dict(format="pt"))
    batch = make_goldens.make_batch(TextConfig(MODELS[name]), 24, name.endswith("padding"))
    logits, loss = make_goldens.loss_of(model, batch)
    loss.backward()
    out = dict(batch, logits=logits.detach().contiguous(), loss=loss.detach())
    gradients = released(name, model, {key: value.grad for key, value in model.named_parameters()})
    out.update({"grad." + key: value for key, value in gradients.items()})
    make_goldens.write_reference(name, model, batch, out)


def rounded(name, dtype, attention):
    """The model of a folder, its weights rounded to bfloat16."""
    folder = os.path.join(make_goldens.ROOT, name)
    if name not in OF_UPSTREAM:
        model = load_step(folder, torch.bfloat16, attention)
        return model.float() if dtype == torch.float32 else model
    if attention != "eager":
        raise ValueError("upstream's has one way of attention")
    model = UpstreamModel(MODELS[name], dtype)
    tensors = load_file(os.path.join(folder, "model.safetensors"))
    tensors = {key: value.to(torch.bfloat16).to(dtype) for key, value in tensors.items()}
    model.inner.load_state_dict(model.inner.state_dict_adapter.from_hf(tensors), strict=True)
    return model.eval()


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
