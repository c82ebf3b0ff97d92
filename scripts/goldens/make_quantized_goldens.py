#!/usr/bin/env python3
"""Makes tests/golden/quantized/: tiny Hugging Face models with quantized weights and what they stand for.

Each folder holds a model (config.json with quantization_config, model.safetensors) and its weights without
quantization, under the names and in the shapes of such a folder:

  dequantized_bfloat16.safetensors   every tensor
  dequantized_float32.safetensors    those that are quantized

Both are what transformers loads on the CPU with `dequantize=True`. transformers takes a block's size from the
shapes, and cannot load a weight whose size is no multiple of its blocks'; there (deepseek_v3_fp8) the formula that
the models' authors publish is computed in torch: each block of the weight in float32 times its scale. The same is
asserted of every tensor that transformers loads.

Run: python scripts/goldens/make_quantized_goldens.py; needs torch, transformers, compressed-tensors, safetensors.
"""

import json
import os
import shutil

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils.quantization_config import CompressedTensorsConfig, FineGrainedFP8Config, Mxfp4Config

ROOT = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tests", "golden")
OUT = os.path.join(ROOT, "quantized")

SIZES = dict(
    vocab_size=128,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    bos_token_id=1,
    eos_token_id=2,
)
FP8_MAX = 448.0
FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])


def plain_model(model_type, options):
    """A tiny model's tensors in bfloat16, under the names that its folders have."""
    torch.manual_seed(7)
    config = AutoConfig.for_model(model_type, **options)
    config.dtype = torch.bfloat16
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    folder = os.path.join(OUT, "plain")
    model.save_pretrained(folder)
    tensors = load_file(os.path.join(folder, "model.safetensors"))
    for name, tensor in tensors.items():
        if tensor.ndim < 2 and "norm" in name:
            tensors[name] = (tensor + 0.1 * torch.randn(tensor.shape)).to(torch.bfloat16)
        elif tensor.ndim >= 2 and "embed" not in name:
            # Not all blocks of one size, so that a wrong scale shows.
            tensors[name] = (tensor * torch.logspace(-1, 1, tensor.shape[0]).view(-1, *[1] * (tensor.ndim - 1))).to(
                torch.bfloat16
            )
    with open(os.path.join(folder, "config.json")) as file:
        text = json.load(file)
    shutil.rmtree(folder)
    return text, tensors


def blocks_of(weight, rows, cols):
    """The weight's blocks, zeros at the ragged edges: [grid rows, rows, grid cols, cols]."""
    grid = [-(-weight.shape[0] // rows), -(-weight.shape[1] // cols)]
    padded = torch.zeros(grid[0] * rows, grid[1] * cols)
    padded[: weight.shape[0], : weight.shape[1]] = weight.float()
    return padded.view(grid[0], rows, grid[1], cols)


def to_fp8(weight, rows, cols):
    """float8 weight and the float32 scales of its blocks."""
    blocks = blocks_of(weight, rows, cols)
    scales = blocks.abs().amax(dim=(1, 3)) / FP8_MAX
    codes = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn)
    flat = codes.view(torch.uint8).reshape(blocks.shape[0] * rows, -1)[: weight.shape[0], : weight.shape[1]]
    return flat.contiguous().view(torch.float8_e4m3fn), scales


def from_fp8(weight, scales, rows, cols):
    wide = scales.float().repeat_interleave(rows, 0).repeat_interleave(cols, 1)
    return weight.float() * wide[: weight.shape[0], : weight.shape[1]]


def from_mxfp4(blocks, scales):
    values = torch.stack([FP4[(blocks & 15).long()], FP4[(blocks >> 4).long()]], -1).flatten(-2)
    return torch.ldexp(values, scales.int().unsqueeze(-1) - 127).flatten(-2).transpose(1, 2).contiguous()


def write(name, config, tensors, dequantized, quantization):
    folder = os.path.join(OUT, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    config.pop("transformers_version", None)
    config["quantization_config"] = quantization
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file, indent=2)
        file.write("\n")
    save_file(tensors, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    hidden = ("_scale", "_scale_inv", "_scales", "_blocks")
    plain = {name: tensor for name, tensor in tensors.items() if not name.endswith(hidden)}
    save_file(
        {**plain, **dequantized(torch.bfloat16)}, os.path.join(folder, "dequantized_bfloat16.safetensors")
    )
    save_file(dequantized(torch.float32), os.path.join(folder, "dequantized_float32.safetensors"))
    return folder


def rounded(tensors):
    """The tensors in the dtype that is asked for."""
    return lambda dtype: {name: tensor.to(dtype) for name, tensor in tensors.items()}


def check(folder, dequantized, quantization):
    """transformers loads the same numbers."""
    for dtype in (torch.bfloat16, torch.float32):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, quantization_config=quantization)
        loaded = model.state_dict()
        seen = 0
        wanted = dequantized(dtype)
        for name, values in wanted.items():
            if name not in loaded:
                continue
            seen += 1
            # Mxfp4Config leaves bfloat16, which holds its values exactly.
            assert torch.equal(loaded[name].to(dtype), values), (folder, name, dtype)
        print(os.path.basename(folder), dtype, f"{seen} of {len(wanted)} tensors are transformers'")


def is_linear(name, tensor):
    return tensor.ndim == 2 and "proj" in name


def make_fp8(name, model_type, options, rows, cols, is_ragged):
    config, tensors = plain_model(model_type, options)
    stored, dequantized = {}, {}
    for key, tensor in tensors.items():
        if not is_linear(key, tensor):
            stored[key] = tensor
            continue
        stored[key], stored[key + "_scale_inv"] = to_fp8(tensor, rows, cols)
        dequantized[key] = from_fp8(stored[key], stored[key + "_scale_inv"], rows, cols)
    settings = dict(
        quant_method="fp8", activation_scheme="dynamic", fmt="e4m3", weight_block_size=[rows, cols]
    )
    folder = write(name, config, stored, rounded(dequantized), settings)
    if not is_ragged:
        check(folder, rounded(dequantized), FineGrainedFP8Config(dequantize=True, weight_block_size=(rows, cols)))


def make_fp8_of_tensors():
    config, tensors = plain_model("mistral", dict(SIZES, head_dim=16))
    stored, dequantized = {}, {}
    for key, tensor in tensors.items():
        if not is_linear(key, tensor):
            stored[key] = tensor
            continue
        scale = (tensor.float().abs().max() / FP8_MAX).to(torch.bfloat16)
        stored[key] = (tensor.float() / scale.float()).to(torch.float8_e4m3fn)
        stored[key + "_scale_inv"] = scale
        stored[key[: -len("weight")] + "activation_scale"] = torch.tensor(0.03125, dtype=torch.bfloat16)
        dequantized[key] = stored[key].float() * scale.float()
    settings = dict(
        quant_method="fp8",
        activation_scheme="static",
        dequantize=False,
        weight_block_size=None,
        modules_to_not_convert=["lm_head"],
    )
    folder = write("mistral_fp8_static", config, stored, rounded(dequantized), settings)
    check(
        folder,
        rounded(dequantized),
        FineGrainedFP8Config(
            dequantize=True, activation_scheme="static", weight_block_size=None, modules_to_not_convert=["lm_head"]
        ),
    )


def make_compressed():
    config, tensors = plain_model("llama", SIZES)
    stored, quantized = {}, []
    for key, tensor in tensors.items():
        if not is_linear(key, tensor):
            stored[key] = tensor
            continue
        scale = tensor.float().abs().amax(1, keepdim=True) / FP8_MAX
        stored[key] = (tensor.float() / scale).to(torch.float8_e4m3fn)
        stored[key + "_scale"] = scale
        quantized.append(key)

    def dequantized(dtype):
        return {key: stored[key].to(dtype) * stored[key + "_scale"].to(dtype) for key in quantized}

    weights = dict(
        num_bits=8, type="float", symmetric=True, strategy="channel", dynamic=False, observer="minmax", group_size=None
    )
    inputs = dict(weights, strategy="token", dynamic=True, observer=None)
    settings = dict(
        quant_method="compressed-tensors",
        format="float-quantized",
        quantization_status="compressed",
        config_groups=dict(group_0=dict(targets=["Linear"], weights=weights, input_activations=inputs)),
        ignore=["lm_head"],
    )
    folder = write("llama_compressed_channel", config, stored, dequantized, settings)
    check(folder, dequantized, CompressedTensorsConfig(dequantize=True))


def make_mxfp4():
    options = dict(
        SIZES, head_dim=16, intermediate_size=32, num_local_experts=4, num_experts_per_tok=2, sliding_window=8
    )
    config, tensors = plain_model("gpt_oss", options)
    stored, dequantized = {}, {}
    for key, tensor in tensors.items():
        if not key.endswith(("gate_up_proj", "down_proj")):
            stored[key] = tensor
            continue
        experts, rows, cols = tensor.shape
        stored[key + "_blocks"] = torch.randint(0, 256, (experts, cols, rows // 32, 16), dtype=torch.uint8)
        stored[key + "_scales"] = torch.randint(117, 123, (experts, cols, rows // 32), dtype=torch.uint8)
        dequantized[key] = from_mxfp4(stored[key + "_blocks"], stored[key + "_scales"])
    settings = dict(
        quant_method="mxfp4",
        modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"],
    )
    folder = write("gpt_oss_mxfp4", config, stored, rounded(dequantized), settings)
    check(folder, rounded(dequantized), Mxfp4Config(dequantize=True))


def main():
    os.makedirs(OUT, exist_ok=True)
    make_fp8("qwen3_fp8", "qwen3", dict(SIZES, head_dim=16), 32, 32, False)
    with open(os.path.join(ROOT, "deepseek_v3", "config.json")) as file:
        deepseek = json.load(file)
    deepseek.pop("model_type")
    make_fp8("deepseek_v3_fp8", "deepseek_v3", deepseek, 20, 12, True)
    make_fp8_of_tensors()
    make_compressed()
    make_mxfp4()


main()
