#!/usr/bin/env python3
"""Varies the configurations of the goldens at random and compares each with transformers.

usage: vary_goldens.py [--count N] [--seed N] [--binary PATH] [--keep FOLDER] [NAME...]

Each time one golden's configuration (of NAMEs, default all) gets one to three other values: a switch turned, a
size, a factor, an activation, another kind of rotary embedding. What transformers cannot build, or what gives no
finite loss there, does not count. The others are saved as Hugging Face folders, with logits, loss, gradients and three
steps, and given to `automodel parity`, by the fused path or the plain one: equal, refused with a reason (status 2, 3 or
6), or a finding. Gradients that are zero but for rounding (of a key's bias where nothing turns keys) are equal
whatever their ratio. Prints findings and the counts; status 1 at a finding, whose folder is kept.
"""

import argparse
import collections
import contextlib
import io
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers

import make_goldens as goldens

# What describes no mathematics, or what a test cannot see.
LEFT_ALONE = {
    "architectures", "auto_map", "bos_token_id", "chunk_size_feed_forward", "dtype", "eos_token_id", "id2label",
    "initializer_range", "is_encoder_decoder", "label2id", "layer_types", "max_position_embeddings", "mlp_layer_types",
    "model_type", "output_attentions", "output_hidden_states", "pad_token_id", "problem_type", "return_dict",
    "torch_dtype", "transformers_version", "use_cache", "vocab_size", "n_positions", "output_router_logits",
    "rope_parameters", "attention_dropout", "embd_pdrop", "resid_pdrop", "attn_pdrop", "hidden_dropout",
    "num_hidden_layers", "n_layer", "_name_or_path", "router_aux_loss_coef", "pretraining_tp", "is_decoder",
    "add_cross_attention", "use_mem_eff_path", "mamba_dropout", "moe_router_dropout", "residual_dropout",
    "experts_implementation", "summary_activation", "summary_first_dropout", "summary_type", "summary_use_proj",
    "summary_proj_to_labels", "reorder_and_upcast_attn", "attn_implementation", "router_jitter_noise",
    "input_jitter_noise", "classifier_dropout", "embd_dropout", "ep_size", "num_logits_to_keep", "resid_dropout",
}
ACTIVATIONS = ("silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "relu2")


ZERO = 5e-6  # the largest difference of gradients that may be rounding alone


def is_rounding(output):
    """Whether gradients differ by no more than rounding, and nothing else but what AdamW, which divides them by
    their size, makes of that."""
    wrong = [line for line in output.splitlines() if "TOO LARGE" in line]
    if not wrong or any(not line.startswith(("gradients: ", "training: ")) for line in wrong):
        return False
    found = re.match(r"gradients: worst absolute (\S+)", wrong[0])
    return found is not None and float(found.group(1)) <= ZERO


def other_layer_types(types, draw):
    """The kinds of layers in another order, where there are several."""
    mixed = list(types)
    draw.shuffle(mixed)
    return mixed if mixed != list(types) else None


def rope_kinds(theta):
    return [
        dict(rope_type="default", rope_theta=theta),
        dict(rope_type="linear", factor=3.0, rope_theta=theta),
        dict(rope_type="dynamic", factor=2.0, rope_theta=theta),
        dict(rope_type="yarn", factor=4.0, rope_theta=theta, original_max_position_embeddings=16),
        dict(rope_type="yarn", factor=2.0, rope_theta=theta, original_max_position_embeddings=32, beta_fast=16.0,
             beta_slow=2.0, attention_factor=0.9),
        dict(rope_type="llama3", factor=8.0, rope_theta=theta, low_freq_factor=1.0, high_freq_factor=4.0,
             original_max_position_embeddings=16),
    ]


def other_value(key, value, draw):
    """Another value for a key, or None where there is none to try."""
    if key in ("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act"):
        return draw.choice([name for name in ACTIVATIONS if name != value])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        if value == 0:
            return None
        return draw.choice([value * 2, value + 1, value - 1, max(1, value // 2), value + 8])
    if isinstance(value, float):
        if key.endswith("eps") or key.endswith("epsilon"):
            return draw.choice([1e-3, 1e-5, 1e-8])
        if 0 < value < 1:
            return draw.choice([value / 2, 1 - value / 2])
        return value * draw.choice([0.5, 1.5, 3.0]) if value else draw.choice([0.5, 1.5])
    return None


def vary(name, draw):
    """The golden's options with others, and what was changed; None where nothing can be."""
    model_type, options, length = goldens.MODELS[name]
    said = {key: value for key, value in options.items() if value is not None or key in goldens.NONE_IS_SAID}
    config = goldens.AutoConfig.for_model(model_type, **said)
    shown = config.to_dict()
    if "qk_rope_head_dim" in shown:
        shown.pop("head_dim", None)  # is the other
    keys = [key for key in shown if key not in LEFT_ALONE and not isinstance(shown[key], (dict, list))]
    changed = {}
    for _ in range(draw.randint(1, 3)):
        rope = shown.get("rope_parameters")
        if isinstance(rope, dict) and "rope_theta" in rope and draw.random() < 0.2:
            new = draw.choice(rope_kinds(rope["rope_theta"]))
            if "partial_rotary_factor" in rope:
                new["partial_rotary_factor"] = rope["partial_rotary_factor"]
            changed["rope_parameters"] = new
            continue
        if isinstance(shown.get("layer_types"), list) and draw.random() < 0.1:
            types = other_layer_types(shown["layer_types"], draw)
            if types is not None:
                changed["layer_types"] = types
            continue
        key = draw.choice(keys)
        value = other_value(key, shown[key], draw)
        if value is not None:
            changed[key] = value
    if not changed:
        return None
    return (model_type, dict(options, **changed), length), changed


def make_folder(name, variant):
    """The variant's folder with its reference, or None where transformers has none."""
    goldens.MODELS["variant"] = variant
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            goldens.make_model("variant")
    except Exception:  # whatever transformers says of values that do not fit
        return None
    folder = os.path.join(goldens.ROOT, "variant")
    tensors = goldens.load_file(os.path.join(folder, "reference.safetensors"))
    is_finite = all(bool(torch.isfinite(tensor.float()).all()) for tensor in tensors.values())
    return folder if is_finite else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--binary", default="build/release/automodel")
    parser.add_argument("--keep", default="")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    draw = random.Random(arguments.seed)
    keep = pathlib.Path(arguments.keep or tempfile.mkdtemp(prefix="variants-"))
    keep.mkdir(parents=True, exist_ok=True)
    names = arguments.names or sorted(goldens.MODELS)
    counts = collections.Counter()
    reasons = collections.Counter()
    with tempfile.TemporaryDirectory() as root:
        goldens.ROOT = root
        for number in range(arguments.count):
            name = draw.choice(names)
            varied = vary(name, draw)
            if varied is None:
                continue
            variant, changed = varied
            folder = make_folder(name, variant)
            if folder is None:
                counts["not in transformers"] += 1
                continue
            kernels = draw.choice(["fused", "plain"])
            result = subprocess.run(
                [arguments.binary, "parity", "--model", folder, "--reference", f"{folder}/reference.safetensors",
                 "--kernels", kernels],
                capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"), check=False)
            if result.returncode == 0 or is_rounding(result.stdout):
                counts["equal"] += 1
                continue
            last = (result.stderr.strip() or result.stdout.strip()).splitlines()[-1:]
            if result.returncode in (2, 3, 6):
                counts["refused"] += 1
                reasons[f"{name} {changed}: {last}"] += 1
                continue
            counts["findings"] += 1
            shutil.copytree(folder, keep / str(number))
            print(f"{number} {name} {kernels} {json.dumps(changed)}: status {result.returncode}\n{result.stdout[-600:]}{last}")
    for reason in sorted(reasons):
        print("refused:", reason)
    print(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    return 1 if counts["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
