#!/usr/bin/env python3
"""Holds a Hugging Face folder that automodel wrote against transformers.

Usage: scripts/check_export.py --automodel build/release/automodel FOLDER

transformers loads the folder and must give the logits that automodel gives (1e-5 absolute, or twice
transformers' own distance to its float64 logits), its save_pretrained must write the same names,
shapes and dtypes, and the folder's tokenizer must load. Needs torch, transformers and safetensors.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
import transformers


def tensors_of(folder):
    """name -> (shape, dtype) of every safetensors file in a folder."""
    found = {}
    for path in pathlib.Path(folder).glob("*.safetensors"):
        with safetensors.safe_open(path, "pt") as file:
            for name in file.keys():
                part = file.get_slice(name)
                found[name] = (tuple(part.get_shape()), part.get_dtype())
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--automodel", required=True)
    parser.add_argument("folder")
    arguments = parser.parse_args()
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(
        arguments.folder, dtype="auto", attn_implementation="eager", output_loading_info=True
    )
    problems = {key: value for key, value in loading.items() if value}
    if problems:
        sys.exit(f"transformers does not take the folder as it is: {problems}")
    if (pathlib.Path(arguments.folder) / "tokenizer.json").exists():
        transformers.AutoTokenizer.from_pretrained(arguments.folder)
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch)
        theirs, ours = tensors_of(scratch), tensors_of(arguments.folder)
        if theirs != ours:
            difference = sorted(set(theirs.items()) ^ set(ours.items()))
            sys.exit(f"names, shapes or dtypes differ from save_pretrained's: {difference[:10]}")
    print(f"{len(ours)} tensors with save_pretrained's names, shapes and dtypes")

    torch.manual_seed(0)
    length = min(64, model.config.max_position_embeddings)
    ids = torch.randint(0, model.config.vocab_size, (2, length))
    model = model.float().eval()
    with torch.no_grad():
        logits = model(input_ids=ids).logits
        exact = model.double()(input_ids=ids).logits
    allowed = max(1e-5, 2 * float((logits - exact).abs().max()))
    with tempfile.TemporaryDirectory() as scratch:
        reference = pathlib.Path(scratch) / "reference.safetensors"
        safetensors.torch.save_file(
            {"input_ids": ids, "labels": torch.roll(ids, -1, 1), "logits": logits}, reference
        )
        run = subprocess.run(
            [arguments.automodel, "parity", "--model", arguments.folder, "--reference",
             str(reference), "--tolerance-logits", str(allowed)],
            capture_output=True, text=True,
        )
    print(run.stdout.strip() or run.stderr.strip())
    if run.returncode != 0 or not re.search(r"^logits: .*ok", run.stdout, re.MULTILINE):
        sys.exit(f"the logits differ by more than {allowed:.1e}")


if __name__ == "__main__":
    main()
