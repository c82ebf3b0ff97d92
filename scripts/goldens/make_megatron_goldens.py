#!/usr/bin/env python3
"""Makes tests/datasets/data/megatron: token files in Megatron's indexed format, and samples.json, the samples that
AutoModel's MegatronPretraining draws from them.

Run by a python with nemo_automodel 0.7.0 (and torch, transformers; it compiles its helpers, so ninja and a C++ compiler):
  python scripts/goldens/make_megatron_goldens.py

The files hold documents of 0 to 40 tokens below 400: a and b as uint16 (dtype code 8), c as int32 (code 4). Every case
of samples.json is a configuration, the pad and eos ids of the tokenizer, and input_ids and labels of all samples.
"""

import json
import os
import pathlib
import random
import shutil
import struct
import tempfile
import types

import nemo_automodel
from nemo_automodel.components.datasets.llm.megatron.sampler import create_megatron_sampler
from nemo_automodel.components.datasets.llm.length_grouped_sampler import LengthGroupedSampler
from nemo_automodel.components.datasets.llm.megatron_dataset import MegatronPretraining

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests" / "datasets" / "data" / "megatron"


def write_tokens(name, num_documents, seed, code, letter):
    rng = random.Random(seed)
    documents = [[rng.randrange(3, 400) for _ in range(rng.randint(0, 40))] + [2] for _ in range(num_documents)]
    documents[3] = []
    documents[5] += [2, 2]
    lengths = [len(document) for document in documents]
    size = struct.calcsize(letter)
    pointers = [size * sum(lengths[:i]) for i in range(num_documents)]
    with open(FOLDER / f"{name}.bin", "wb") as file:
        for document in documents:
            file.write(struct.pack(f"<{len(document)}{letter}", *document))
    with open(FOLDER / f"{name}.idx", "wb") as file:
        file.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, num_documents, num_documents + 1))
        file.write(struct.pack(f"<{num_documents}i", *lengths))
        file.write(struct.pack(f"<{num_documents}q", *pointers))
        file.write(struct.pack(f"<{num_documents + 1}q", *range(num_documents + 1)))


def cases():
    """Configurations: paths, split, part, length, wanted samples, max_steps, and the tokenizer's pad and eos."""
    base = {"paths": ["a"], "split": "900,50,50", "part": "train", "seq_length": 16, "seed": 1234, "pad": 0, "eos": 2}
    yield base
    yield {**base, "max_steps": 3}
    yield {**base, "max_steps": 40, "seed": 7}  # several epochs, the last apart
    yield {**base, "max_steps": 33}
    yield {**base, "split": "0.6, 0.3, 0.1", "part": "validation"}
    yield {**base, "split": "0.6, 0.3, 0.1", "part": "test", "num_samples": 20}
    yield {**base, "paths": ["c"], "split": "1", "seq_length": 33, "pad": 7}
    yield {**base, "paths": ["a"], "split": "1", "pad": 2}
    yield {**base, "paths": ["a", "b", "c"], "split": "80,20"}
    yield {**base, "paths": ["a", "b", "c"], "split": "80,20", "max_steps": 5}
    yield {**base, "paths": ["30", "a", "70", "b"], "split": "80,20", "max_steps": 12}
    yield {**base, "paths": ["3", "a", "1", "b", "2.5", "c"], "split": "80,20", "part": "validation", "num_samples": 9, "max_steps": 2}
    yield {**base, "paths": {"train": ["a"], "valid": ["1", "b", "1", "c"]}, "part": "train", "max_steps": 4}
    yield {**base, "paths": {"train": ["a"], "validation": ["1", "b", "1", "c"]}, "part": "validation", "num_samples": 6}
    yield {**base, "paths": {"train": ["a"], "validation": ["b", "c", "a"]}, "part": "validation"}


def named(paths):
    if isinstance(paths, dict):
        return {"validation" if part == "valid" else part: named(entries) for part, entries in paths.items()}
    return [entry if entry.replace(".", "").isdigit() else str(FOLDER / entry) for entry in paths]


def make(case):
    tokenizer = types.SimpleNamespace(pad_token_id=case["pad"], eos_token_id=case["eos"], name_or_path="tokenizer")
    sizes = {f"num_{'val' if case['part'] == 'validation' else case['part']}_samples": case.get("num_samples")}
    with tempfile.TemporaryDirectory() as scratch:
        data = MegatronPretraining(
            paths=named(case["paths"]), seq_length=case["seq_length"], tokenizer=tokenizer, micro_batch_size=2,
            global_batch_size=4, seed=case["seed"], split=None if isinstance(case["paths"], dict) else case["split"],
            index_mapping_dir=scratch if len(case["paths"]) == 1 else None, trainer_max_steps=case.get("max_steps"),
            splits_to_build=case["part"], **sizes,
        )
        data.build()
        dataset = data.get_dataset(case["part"])
        samples = [dataset[i] for i in range(len(dataset))]
    return case | {
        "input_ids": [sample["input_ids"].tolist() for sample in samples],
        "labels": [sample["labels"].tolist() for sample in samples],
    }


def dealt():
    """Rows of each rank: Megatron's samplers, and LengthGroupedSampler over lengths."""
    for kind in ("single", "cyclic"):
        for ranks in (1, 2):
            rows = [
                [i for batch in create_megatron_sampler(23, 3, 6, kind, rank=rank, world_size=ranks) for i in batch]
                for rank in range(ranks)
            ]
            yield {"kind": kind, "num_rows": 23, "batch_size": 3, "epoch": 0, "ranks": rows}
    rng = random.Random(5)
    for num_rows, ranks, epoch in ((23, 1, 0), (23, 1, 3), (24, 2, 0), (24, 4, 1), (27, 3, 2)):
        lengths = [rng.randrange(1, 12) for _ in range(num_rows)]
        rows = [{"input_ids": [0] * length} for length in lengths]
        lists = []
        for rank in range(ranks):
            sampler = LengthGroupedSampler(rows, batch_size=2, seed=42, num_replicas=ranks, rank=rank)
            sampler.set_epoch(epoch)
            lists.append(list(sampler))
        yield {"kind": "length", "lengths": lengths, "batch_size": 2, "epoch": epoch, "ranks": lists}


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_tokens("a", 60, 1, 8, "H")
    write_tokens("b", 45, 2, 8, "H")
    write_tokens("c", 30, 3, 4, "i")
    lines = [json.dumps(make(case)) for case in cases()]
    deals = ",\n".join(json.dumps(deal) for deal in dealt())
    (FOLDER / "samples.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    (FOLDER / "dealt.json").write_text("[\n" + deals + "\n]\n")
    for name in "abc":  # where AutoModel keeps indices
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    print(f"{len(lines)} cases by AutoModel {nemo_automodel.__version__}")


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
