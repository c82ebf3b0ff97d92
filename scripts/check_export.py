#!/usr/bin/env python3
"""Holds Hugging Face folders that automodel wrote against transformers.

Usage: scripts/check_export.py --automodel build/release/automodel FOLDER...

transformers loads each folder without a missing, unexpected or uninitialised tensor; automodel's logits must be
as near to those that it computes in float64 as its own in float32 are (twice their distance, or 1e-5); its
chat template must write what render-chat writes,
its save_pretrained must write the same names, shapes and dtypes, and the folder's tokenizer must load.
Ling, which transformers has no class for, is read by GLM 4.5's (goldens/ling_as_glm4.py), Step 3.5 by Step 3.7's
text model (goldens/step_as_step3p7.py), Baichuan and Nemotron NAS by Llama's (goldens/baichuan_as_llama.py,
goldens/decilm_as_llama.py), LLaDA 2 as Ling and LLaDA by Llama's (goldens/llada_as_llama.py), both with a mask that
hides nothing.
Of DiffusionGemma, whose class writes the encoder's copies by rules of its own, the loading and finite
logits. Needs torch, transformers and safetensors (scripts/setup_peers.sh).
"""

import argparse
import functools
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "goldens"))
import decilm_as_llama
from baichuan_as_llama import baichuan_tensors, write_llama_folder
from kimi_names import released_names
import deepseek_moe  # noqa: F401  makes its class known
import renamed_families
from ling_as_glm4 import ling_tensors, seeing_all, write_glm_folder
from llada_as_llama import is_llama, llada_tensors, write_llada_as_llama
from step_as_step3p7 import is_computed, load_step, released_tensors


class Mismatch(Exception):
    """A folder that is not as transformers wants it."""


def tensors_of(folder):
    """name -> (shape, dtype) of every safetensors file in a folder."""
    found = {}
    for path in pathlib.Path(folder).glob("*.safetensors"):
        with safetensors.safe_open(path, "pt") as file:
            for name in file.keys():
                part = file.get_slice(name)
                found[name] = (tuple(part.get_shape()), part.get_dtype())
    return found


def check_tokenizer(tokenizer, folder, automodel):
    """The folder's chat template and tokens are what transformers makes of them."""
    if tokenizer.chat_template is None:
        return
    conversation = [
        {"role": "user", "content": "Grüße, wie viel ist 2 + 2?"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "And 3 more?"},
    ]
    expected = tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    special = {key: value for key, value in tokenizer.special_tokens_map.items() if isinstance(value, str)}
    line = {"template": tokenizer.chat_template, "messages": conversation, "add_generation_prompt": True, "kwargs": special}
    command = [automodel, "render-chat"]
    answer = subprocess.run(command, input=json.dumps(line) + "\n", capture_output=True, text=True, check=True)
    if json.loads(answer.stdout).get("rendered") != expected:
        raise Mismatch(f"apply_chat_template writes {expected!r}, render-chat {answer.stdout!r}")


def load(model_class, folder, automodel, may_lack=()):
    """The model of a folder, every tensor of which found its place; it may lack some parts."""
    # transformers' own fused experts take no float64.
    model, loading = model_class.from_pretrained(
        folder, dtype="auto", attn_implementation="eager", experts_implementation="eager",
        output_loading_info=True,
    )
    loading["missing_keys"] = {
        name for name in loading["missing_keys"] if not any(part in name for part in may_lack)
    }
    problems = {key: value for key, value in loading.items() if value}
    if problems:
        raise Mismatch(f"transformers does not take the folder as it is: {problems}")
    if (folder / "tokenizer.json").exists():
        check_tokenizer(transformers.AutoTokenizer.from_pretrained(folder), folder, automodel)
    return model


def check_diffusion(automodel, folder):
    """Loading and finite logits of a DiffusionGemma folder."""
    # One that is made from its configuration has no vision part.
    model = load(transformers.DiffusionGemmaForBlockDiffusion, folder, automodel, ("embed_vision", "vision_tower"))
    ids = torch.arange(4, 16)[None]
    with torch.no_grad():
        logits = model(input_ids=ids, decoder_input_ids=ids[:, :4]).logits
    if not bool(torch.isfinite(logits).all()):
        raise Mismatch("logits are not finite")
    return "every tensor read, logits finite"


# How the folder of a family that transformers lacks is written as another's.
WRITTEN_AS = {
    "bailing_moe": write_glm_folder,
    "llada2_moe": write_glm_folder,
    "baichuan": write_llama_folder,
    "llada": write_llada_as_llama,
    "nemotron-nas": decilm_as_llama.write_llama_folder,
    **dict.fromkeys(renamed_families.KINDS, renamed_families.write_peer_folder),
}


def load_as_another(folder, automodel, write):
    """The model of a folder, as the other family's."""
    with tempfile.TemporaryDirectory() as scratch:
        write(folder, scratch)
        return load(transformers.AutoModelForCausalLM, pathlib.Path(scratch), automodel)


def check_step_names(model, folder):
    """The folder has the tensors of the model, each read."""
    has_bias = model.written.get("use_moe_router_bias", False)
    wanted = {name: tuple(value.shape) for name, value in released_tensors(model.state_dict(), has_bias).items()}
    found = {name: shape for name, (shape, _) in tensors_of(folder).items()}
    if found != wanted:
        raise Mismatch(f"names or shapes differ from the model's: {sorted(set(found.items()) ^ set(wanted.items()))[:10]}")
    return len(found)


def deepseek_v4_names(tensors):
    """What save_pretrained makes of a DeepSeek V4's names, which are in part transformers', as the releases'."""
    changes = (("model.", ""), ("embed_tokens.", "embed."), ("hc_head.hc_", "hc_head_"), (".attn.norm.", ".attn.kv_norm."))
    out = {}
    for name, value in tensors.items():
        for theirs, released in changes:
            name = name.replace(theirs, released, 1)
        out[name] = value
    return out


def check_names(model, folder, model_type):
    """save_pretrained writes what the folder has."""
    if model_type == "nemotron-nas":  # Llama's tensors have other shapes
        wanted = decilm_as_llama.decilm_shapes(json.loads((folder / "config.json").read_text()))
        found = {name: shape for name, (shape, _) in tensors_of(folder).items()}
        if found != wanted:
            raise Mismatch(f"names or shapes differ: {sorted(set(found.items()) ^ set(wanted.items()))[:10]}")
        return len(found)
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch)
        in_releases = {"bailing_moe": ling_tensors, "llada2_moe": ling_tensors, "llada": llada_tensors,
                       "baichuan": baichuan_tensors, "kimi_linear": released_names}.get(model_type)
        if model_type in renamed_families.KINDS:
            own = json.loads((folder / "config.json").read_text())
            in_releases = functools.partial(renamed_families.own_tensors, own=own)
        if in_releases:
            path = pathlib.Path(scratch) / "model.safetensors"
            safetensors.torch.save_file(in_releases(safetensors.torch.load_file(path)), path)
        theirs, ours = tensors_of(scratch), tensors_of(folder)
        if model.config.model_type == "deepseek_v4":
            theirs = deepseek_v4_names(theirs)
        if model.config.model_type == "nemotron_h":  # transformers passes by layers that predict further tokens
            ours = {name: value for name, value in ours.items() if not name.startswith("mtp.")}
    if theirs != ours:
        difference = sorted(set(theirs.items()) ^ set(ours.items()))
        raise Mismatch(f"names, shapes or dtypes differ from save_pretrained's: {difference[:10]}")
    return len(ours)


class InFloat64(torch.overrides.TorchFunctionMode):
    """Models compute norms, rotations, routers and recurrences in float32 whatever their weights are: here in float64."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        def wider(value):
            return torch.float64 if value is torch.float32 else value

        if function is torch.Tensor.float:
            function = torch.Tensor.double
        return function(*map(wider, args), **{name: wider(value) for name, value in (kwargs or {}).items()})


def check(automodel, folder):
    """What was found right, in words."""
    written = json.loads((folder / "config.json").read_text())
    if written["model_type"] == "diffusion_gemma":
        return check_diffusion(automodel, folder)
    has_tower = "vision_config" in written
    model_class = transformers.AutoModelForImageTextToText if has_tower else transformers.AutoModelForCausalLM
    if written["model_type"] == "mistral4":  # no Auto class knows it
        model_class = transformers.Mistral4ForCausalLM
    write = WRITTEN_AS.get(written["model_type"])
    if written["model_type"] == "llada" and not is_llama(written):
        return f"{len(tensors_of(folder))} tensors; not compared: no class of transformers computes them"
    if written["model_type"] == "step3p5":
        if not is_computed(written):
            return f"{len(tensors_of(folder))} tensors; not compared: no class of transformers computes them"
        model = load_step(folder)
        num_tensors = check_step_names(model, folder)
    else:
        model = load_as_another(folder, automodel, write) if write else load(model_class, folder, automodel)
        num_tensors = check_names(model, folder, written["model_type"])
    ours, theirs = worst_errors(automodel, folder, model)
    # The worst of some thousand rounding errors is three times another's now and then: of several, the middle one.
    allowed = max(1e-5, 2 * statistics.median(theirs))
    if statistics.median(ours) > allowed or max(ours) > 10 * max(1e-5, *theirs):
        raise Mismatch(f"logits of some sequences are {ours} away from float64, transformers' {theirs}")
    return (f"{num_tensors} tensors as save_pretrained's, logits {statistics.median(ours):.1e} away from float64 "
            f"(allowed {allowed:.1e})")


def worst_errors(automodel, folder, model):
    """The largest difference of a logit from float64, the program's and transformers', of some batches."""
    ours, theirs = [], []
    text = model.config.get_text_config()
    length = min(64, getattr(text, "max_position_embeddings", 64))
    for seed in range(3):
        torch.manual_seed(seed)
        ids = torch.randint(0, text.vocab_size, (2, length))
        with torch.no_grad():
            logits = model.float().eval()(input_ids=ids, **seeing_all(model, ids)).logits
            with InFloat64():
                exact = model.double()(input_ids=ids, **seeing_all(model, ids)).logits
        theirs.append(float((logits - exact).abs().max()))
        with tempfile.TemporaryDirectory() as scratch:
            reference = pathlib.Path(scratch) / "reference.safetensors"
            safetensors.torch.save_file(
                {"input_ids": ids, "labels": torch.roll(ids, -1, 1), "logits": exact.float()}, reference
            )
            run = subprocess.run(
                [automodel, "parity", "--model", str(folder), "--reference", str(reference),
                 "--tolerance-logits", "1e30"],
                capture_output=True, text=True,
            )
        found = re.search(r"^logits: worst absolute (\S+) ", run.stdout, re.MULTILINE)
        if run.returncode != 0 or not found:
            raise Mismatch(f"no logits: {run.stdout}{run.stderr}")
        ours.append(float(found.group(1)))
    return ours, theirs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--automodel", required=True)
    parser.add_argument("folder", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    num_wrong = 0
    for folder in arguments.folder:
        try:
            print(f"{folder}: {check(arguments.automodel, folder)}")
        except Exception as error:  # one folder's failure must not hide the next one's
            num_wrong += 1
            print(f"{folder}: WRONG: {type(error).__name__}: {error}")
    print(f"{len(arguments.folder) - num_wrong} folders right, {num_wrong} wrong")
    sys.exit(1 if num_wrong else 0)


if __name__ == "__main__":
    main()
