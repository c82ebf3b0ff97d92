#!/usr/bin/env python3
"""Makes tests/datasets/data/nanogpt: .bin files as nanoGPT's scripts write them, and samples.json, the samples that
AutoModel's NanogptDataset draws from them.

usage: make_nanogpt_goldens.py WHEEL_FOLDER

WHEEL_FOLDER holds NeMo AutoModel 0.7.0, unpacked; run by the python that scripts/setup_peers.sh prints. One process, as
the first of one dataloader worker: that decides the order of shuffled files.

a.bin, b.bin and c.bin have the newer header, a and c with uint16 and b with uint32 tokens; legacy.bin has fineweb.py's,
whose fourth entry says nothing. Documents have 1 to 40 tokens below 300 and begin with 1.
"""

import importlib.util
import itertools
import json
import pathlib
import random
import sys

import numpy as np
import torch.utils.data

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests" / "datasets" / "data" / "nanogpt"
BOS = 1
FILES = {"a": (301, np.uint16), "b": (187, np.uint32), "c": (64, np.uint16), "legacy": (250, None)}


def load_upstream(wheel):
    path = pathlib.Path(wheel) / "nemo_automodel" / "components" / "datasets" / "llm" / "nanogpt_dataset.py"
    spec = importlib.util.spec_from_file_location("nanogpt_dataset", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["nanogpt_dataset"] = module
    spec.loader.exec_module(module)
    return module


def write(upstream, name, seed, num_tokens, dtype):
    rng = random.Random(seed)
    tokens = []
    while len(tokens) < num_tokens:
        tokens += [BOS] + [rng.randrange(2, 300) for _ in range(rng.randint(0, 39))]
    header = np.zeros(256, dtype=np.int32)
    header[:3] = upstream.MAGIC if dtype else upstream.LEGACY_MAGIC, upstream.VERSION, num_tokens
    header[3] = np.dtype(dtype).itemsize if dtype else 0
    body = np.array(tokens[:num_tokens], dtype=dtype or np.uint16)
    (FOLDER / f"{name}.bin").write_bytes(header.tobytes() + body.tobytes())


def cases():
    """Names of files or a pattern, options, and how many samples are taken."""
    yield dict(files=["a.bin"], seq_len=16, take=40)
    yield dict(files=["legacy.bin"], seq_len=7, take=40)
    yield dict(pattern="*.bin", seq_len=16, take=120)
    yield dict(files=["c.bin", "a.bin", "b.bin"], seq_len=20, take=60)
    yield dict(pattern="[abc].bin", seq_len=16, shuffle_files=True, take=160)
    yield dict(pattern="*.bin", seq_len=24, shuffle_files=True, align_to_bos=True, bos_token=BOS, take=90)
    yield dict(pattern="?.bin", seq_len=10, align_to_bos=True, bos_token=BOS, take=60)
    yield dict(files=["c.bin", "b.bin"], seq_len=63, take=12)  # a file of one sample
    yield dict(files=["c.bin", "b.bin"], seq_len=64, take=12)  # a file of none


def main():
    upstream = load_upstream(sys.argv[1])
    upstream.get_worker_info = lambda: torch.utils.data._utils.worker.WorkerInfo(id=0, num_workers=1, seed=0, dataset=None)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for seed, (name, (num_tokens, dtype)) in enumerate(FILES.items()):
        write(upstream, name, seed, num_tokens, dtype)
    goldens = []
    for case in cases():
        options = {key: case[key] for key in ("seq_len", "shuffle_files", "align_to_bos", "bos_token") if key in case}
        pattern = case.get("pattern")
        files = str(FOLDER / pattern) if pattern else [str(FOLDER / name) for name in case["files"]]
        dataset = upstream.NanogptDataset(files, **options)
        samples = list(itertools.islice(iter(dataset), case["take"]))
        for sample in samples:
            assert sample["input_ids"][1:] == sample["labels"][:-1]
        tokens = [sample["input_ids"] + sample["labels"][-1:] for sample in samples]
        named = dict(files=[pattern] if pattern else case["files"])
        goldens.append(dict(named, **options, samples=tokens))
    lines = ",\n".join(json.dumps(golden, separators=(",", ":")) for golden in goldens)
    (FOLDER / "samples.json").write_text(f"[\n{lines}\n]\n")
    print(f"{len(goldens)} cases, {sum(len(golden['samples']) for golden in goldens)} samples")


if __name__ == "__main__":
    main()
