#!/usr/bin/env python3
"""Makes what quantization-aware training by torchao computes on the CPU: tests/kernels/data/fake_quantize.safetensors,
tests/golden/qat and tests/recipes/data/qat.json.

fake_quantize.safetensors holds for each case QUANTIZER.DTYPE.SCALES (int8_dynact_int4weight or int4_weight_only; the
weight's dtype; that of its scales)

  weight, rounded_weight   [48, 64] in groups of 32, and what stands for it
  weight_gradient          of their sum: 0 where the rounding was clamped
  x, rounded_x, x_gradient the same of inputs [2, 9, 64], where the quantizer rounds them

tests/golden/qat is a tiny Qwen2, with QUANTIZER.safetensors beside it: a batch, and logits, loss and gradients of it,
in float32, with groups of 32 and scales in bfloat16. The batch is one of which no value lies so near the border of two
roundings that it changes sides when all weights move by four roundings of float32 (in 64 ways), as the input of a layer may
that sums in another order.

qat.json has the losses and gradient norms of tests/recipes/data/qat.yaml: rows of 33 tokens of a .bin file in their
order, 4 a step, gradients clipped at 1, AdamW; linear layers and the head round from the third step on. Each number has a
spread: how far it or one before it moves at most when all weights begin so far away; some value then changes sides.

Run: python scripts/goldens/make_qat_goldens.py, by the python that scripts/setup_peers.sh --torchao prints.
"""

import json
import os
import shutil

import numpy
import torch
from safetensors.torch import save_file
from torchao.quantization.qat import Int4WeightOnlyQATQuantizer, Int8DynActInt4WeightQATQuantizer
from torchao.quantization.qat.linear import Int4WeightOnlyQATLinear, Int8DynActInt4WeightQATLinear
from transformers import AutoConfig, AutoModelForCausalLM

from make_goldens import ROOT, fill

TESTS = os.path.dirname(os.path.abspath(ROOT))
FOLDER = os.path.join(ROOT, "qat")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
SEEDS = 64  # of perturbed runs
SCALES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CONFIG = dict(vocab_size=64, hidden_size=128, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4,
              num_key_value_heads=1, max_position_embeddings=64, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2)


def rounded(tensor, quantize):
    """What a fake quantizer makes of a tensor, and the gradient of the result's sum."""
    leaf = tensor.detach().clone().requires_grad_()
    result = quantize(leaf)
    result.sum().backward()
    return result.detach(), leaf.grad


def make_numbers():
    out = {}
    for quantizer, layer_class in (("int8_dynact_int4weight", Int8DynActInt4WeightQATLinear),
                                   ("int4_weight_only", Int4WeightOnlyQATLinear)):
        for dtype_name, dtype in DTYPES.items():
            for scales_name, scales in SCALES.items():
                if layer_class is Int4WeightOnlyQATLinear and scales is not torch.bfloat16:
                    continue
                generator = torch.Generator().manual_seed(3)
                # Rows of very different sizes, one of zeros and one without negative values.
                weight = torch.randn(48, 64, generator=generator) * torch.logspace(-3, 1, 48).view(-1, 1)
                weight[5], weight[6] = 0, weight[6].abs()
                x = torch.randn(2, 9, 64, generator=generator) * torch.logspace(-3, 2, 9).view(1, -1, 1)
                x[0, 3], x[0, 4], x[1, 4] = 0, x[0, 4].abs(), -x[1, 4].abs()
                options = {} if layer_class is Int8DynActInt4WeightQATLinear else dict(inner_k_tiles=2)
                layer = layer_class(64, 48, groupsize=32, precision=dtype, scales_precision=scales, **options)
                name = f"{quantizer}.{dtype_name}.{scales_name}."
                out[name + "weight"] = weight.to(dtype)
                out[name + "rounded_weight"], out[name + "weight_gradient"] = rounded(
                    weight.to(dtype), layer.weight_fake_quantizer)
                if layer.activation_fake_quantizer is None:
                    continue
                out[name + "x"] = x.to(dtype)
                out[name + "rounded_x"], out[name + "x_gradient"] = rounded(x.to(dtype), layer.activation_fake_quantizer)
    save_file(out, os.path.join(TESTS, "kernels", "data", "fake_quantize.safetensors"))


def perturb(model, seed):
    """Moves all weights by a few roundings of float32."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        sign = torch.randint(0, 2, parameter.shape, generator=generator) * 2 - 1
        parameter.data *= 1 + 4 * sign * torch.finfo(torch.float32).eps


def numbers_of(quantizer, batch, labels, seed=None):
    """Logits, loss and gradients of the model under a quantizer."""
    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32, attn_implementation="eager").eval()
    if seed is not None:
        perturb(model, seed)
    model = quantizer.prepare(model)
    logits = model(input_ids=batch, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    loss.backward()
    gradients = {"grad." + key: parameter.grad for key, parameter in model.named_parameters()}
    return dict(logits=logits.detach().contiguous(), loss=loss.detach(), **gradients)


def is_near(found, numbers):
    """Whether no value went to another rounding."""
    return all((found[key] - numbers[key]).norm() <= 2e-5 * numbers[key].norm() for key in numbers)


def make_model():
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen2", **CONFIG)).float()
    fill(model)
    shutil.rmtree(FOLDER, ignore_errors=True)
    model.save_pretrained(FOLDER)
    os.remove(os.path.join(FOLDER, "generation_config.json"))
    for name, quantizer in (
        ("int8_dynact_int4weight", Int8DynActInt4WeightQATQuantizer(groupsize=32, scales_precision=torch.bfloat16)),
        ("int4_weight_only", Int4WeightOnlyQATQuantizer(groupsize=32, inner_k_tiles=8, precision=torch.float32)),
    ):
        for draw in range(1000):
            batch = torch.randint(0, CONFIG["vocab_size"], (2, 6), generator=torch.Generator().manual_seed(draw))
            labels = torch.cat([batch[:, 1:], torch.full((2, 1), -100)], 1)
            numbers = numbers_of(quantizer, batch, labels)
            # Weights are the same bits everywhere: only inputs may change sides.
            if isinstance(quantizer, Int4WeightOnlyQATQuantizer):
                break
            if all(is_near(numbers_of(quantizer, batch, labels, seed), numbers) for seed in range(SEEDS)):
                break
        save_file(dict(numbers, input_ids=batch, labels=labels), os.path.join(FOLDER, name + ".safetensors"))
        print(f"{name:24s} batch {draw} loss {numbers['loss'].item():.6f}")


def train(tokens, seed=None):
    """Losses and gradient norms of the steps; with a seed, of weights that begin one rounding of float32 away."""
    folder = os.path.join(TESTS, "recipes", "data", "tiny_llama")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    if seed is not None:
        perturb(model, seed)
    model = Int8DynActInt4WeightQATQuantizer(groupsize=8, scales_precision=torch.bfloat16).prepare(model)
    layers = [module for module in model.modules() if isinstance(module, Int8DynActInt4WeightQATLinear)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    losses, norms = [], []
    for step in range(6):
        for layer in layers:
            layer.enable_fake_quant(step >= 2)
        rows = torch.tensor(numpy.stack([tokens[33 * row : 33 * row + 33] for row in range(4 * step, 4 * step + 4)]))
        logits = model(input_ids=rows[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        losses.append(loss.item())
    return numpy.array([losses, norms])


def make_run():
    tokens = numpy.fromfile(os.path.join(TESTS, "..", "recipes", "data", "shakespeare_train_0.bin"),
                            dtype=numpy.uint16, offset=1024).astype(numpy.int64)
    losses, norms = values = train(tokens)
    spread = numpy.max([numpy.abs(train(tokens, seed) - values) for seed in range(SEEDS)], axis=0)
    spread = numpy.maximum.accumulate(spread, axis=1)
    records = [dict(loss=losses[step], grad_norm=norms[step], loss_spread=spread[0, step], norm_spread=spread[1, step])
               for step in range(len(losses))]
    for record in records:
        print(record)
    with open(os.path.join(TESTS, "recipes", "data", "qat.json"), "w") as file:
        file.write(json.dumps(dict(versions=f"torch {torch.__version__.split('+')[0]}, torchao 0.18.0", records=records),
                              indent=1) + "\n")


if __name__ == "__main__":
    make_numbers()
    make_model()
    make_run()
