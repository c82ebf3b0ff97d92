#!/usr/bin/env python3
"""Makes tests/golden/gpt2_builder: a model of AutoModel's build_gpt2_model and what it computes.

usage: make_gpt2_builder_goldens.py WHEEL_FOLDER

WHEEL_FOLDER holds NeMo AutoModel 0.7.0, unpacked; run by the python that scripts/setup_peers.sh prints. AutoModel's own
module computes all numbers, as make_goldens.py says of them, with both of its dropouts at 0 (attention's stays on in
evaluation mode there). The folder is a GPT2LMHeadModel of transformers, which must compute the same logits, gradients
and losses: weights of linear layers are stored transposed. arguments.json holds the builder's arguments and the mean and
deviation of each of its initial parameters. The folder's figures in bfloat16.json are made too.
"""

import importlib.util
import json
import os
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import save_file

import make_goldens

NAME = "gpt2_builder"
ARGUMENTS = dict(vocab_size=128, n_positions=24, n_ctx=32, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)
NAMES = (("attn.qkv_proj", "attn.c_attn"), ("attn.out_proj", "attn.c_proj"), ("mlp.fc1", "mlp.c_fc"), ("mlp.fc2", "mlp.c_proj"))


def load_upstream(wheel):
    path = pathlib.Path(wheel) / "nemo_automodel" / "components" / "models" / "gpt2.py"
    spec = importlib.util.spec_from_file_location("upstream_gpt2", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def renamed(name, tensor):
    for theirs, ours in NAMES:
        if theirs in name:
            name = name.replace(theirs, ours)
            tensor = tensor.t() if name.endswith("weight") else tensor
    return "transformer." + name, tensor.clone().contiguous()


def loss_of(logits, labels):
    total = torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1), reduction="sum")
    return total / (labels != -100).sum()


def train(model, logits_of, batch):
    """Logits, loss and gradients, then three losses."""
    logits = logits_of(model)
    loss = loss_of(logits, batch["labels"])
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        step_loss = loss_of(logits_of(model), batch["labels"])
        step_loss.backward()
        optimizer.step()
        losses.append(step_loss.detach())
    return logits.detach(), loss.detach(), gradients, torch.stack(losses)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    upstream = load_upstream(sys.argv[1])
    model = upstream.build_gpt2_model(**ARGUMENTS)
    initial = {}
    for name, parameter in model.named_parameters():
        initial[renamed(name, parameter)[0]] = [parameter.mean().item(), parameter.std(unbiased=False).item()]
    assert model.drop.p == 0.1 and all(block.attn.attn_dropout == 0.1 for block in model.h)
    model.eval()
    for block in model.h:
        block.attn.attn_dropout = 0.0

    config = transformers.GPT2Config(
        vocab_size=128, n_positions=32, n_embd=32, n_layer=2, n_head=4, activation_function="gelu", embd_pdrop=0.1,
        attn_pdrop=0.1, resid_pdrop=0.0, bos_token_id=1, eos_token_id=2,
    )
    twin = transformers.GPT2LMHeadModel(config).float().eval()
    make_goldens.fill(twin)
    filled = dict(twin.named_parameters())
    for name, parameter in model.named_parameters():
        ours, _ = renamed(name, parameter)
        parameter.data = renamed(name, filled.pop(ours).detach())[1]
    assert not filled, filled.keys()
    folder = os.path.join(make_goldens.ROOT, NAME)
    shutil.rmtree(folder, ignore_errors=True)
    twin.save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))

    batch = make_goldens.make_batch(config, 24, False)
    logits, loss, gradients, losses = train(model, lambda m: m(batch["input_ids"]), batch)
    same = train(twin, lambda m: m(batch["input_ids"], use_cache=False).logits, batch)
    gradients = dict(renamed(name, gradient) for name, gradient in gradients.items())
    worst = max((gradients[name] - gradient).abs().max().item() for name, gradient in same[2].items())
    print("transformers differs by", (same[0] - logits).abs().max().item(), worst, (same[3] - losses).abs().max().item())
    assert torch.allclose(same[0], logits, atol=1e-5) and worst < 1e-6 and torch.allclose(same[3], losses, atol=1e-6)

    out = dict(batch, logits=logits.contiguous(), loss=loss, losses=losses)
    out.update({"grad." + name: gradient for name, gradient in gradients.items()})
    save_file(out, os.path.join(folder, "reference.safetensors"))
    with open(os.path.join(folder, "arguments.json"), "w") as file:
        json.dump(dict(arguments=ARGUMENTS, initial=initial), file, indent=1)
        file.write("\n")
    print("losses", losses.tolist())
    make_goldens.MODELS[NAME] = ("gpt2", {}, 24)
    make_goldens.make_bfloat16([NAME])


if __name__ == "__main__":
    main()
