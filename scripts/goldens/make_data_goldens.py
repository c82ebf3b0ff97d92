#!/usr/bin/env python3
"""Makes the golden files of tests/datasets: torch's permutations, and samples and batches as the Hugging
Face tokenizers make them when the rules are followed in plain Python.

Run with a Python that has torch 2.11 and transformers 5 (tokenizers 0.22):
  python scripts/goldens/make_data_goldens.py
"""

import json
import pathlib

import numpy
import tokenizers
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.utils.data.distributed import DistributedSampler

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "datasets" / "data"
IGNORE = -100


def permutations():
    cases = []
    for n in (1, 2, 7, 100, 1319):
        for seed in (0, 42, 43, 2**32 + 5):
            generator = torch.Generator().manual_seed(seed)
            cases.append({"n": n, "seed": seed, "order": torch.randperm(n, generator=generator).tolist()})
    generator = torch.Generator().manual_seed(42)
    order = torch.randperm(100003, generator=generator)
    weights = torch.arange(100003, dtype=torch.int64) % 1009
    large = {"n": 100003, "seed": 42, "first": order[:8].tolist(), "checksum": int((order * weights).sum())}
    return {"torch": torch.__version__.split("+")[0], "cases": cases, "large": large}


def numpy_permutations():
    """How datasets' shuffle(seed) orders rows."""
    cases = []
    for n in (1, 2, 7, 100, 1319):
        for seed in (0, 1, 42, 2**32 + 5, 2**63 + 11):
            order = numpy.random.default_rng(seed).permutation(n)
            cases.append({"n": n, "seed": str(seed), "order": order.tolist()})
    order = numpy.random.default_rng(42).permutation(939343)
    weights = numpy.arange(939343) % 1009
    large = {"n": 939343, "seed": "42", "first": order[:8].tolist(), "checksum": int((order * weights).sum())}
    return {"numpy": numpy.__version__, "cases": cases, "large": large}


def dealt():
    cases = []
    for n in (8, 10, 13):
        for replicas in (1, 2, 4):
            for shuffle in (False, True):
                ranks = []
                for rank in range(replicas):
                    sampler = DistributedSampler(
                        range(n), num_replicas=replicas, rank=rank, shuffle=shuffle, seed=42, drop_last=True
                    )
                    sampler.set_epoch(3)
                    ranks.append(list(sampler))
                cases.append({"n": n, "replicas": replicas, "shuffle": shuffle, "epoch": 3, "ranks": ranks})
    return cases


def train_tokenizer(rows, adds_bos_and_eos):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((row["question"] + " " + row["answer"] for row in rows), trainer)
    if adds_bos_and_eos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
        )
    return tokenizer


def save_tokenizer(tokenizer):
    folder = OUT / "tokenizer"
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names, indent=2) + "\n")


class Recorder:
    """A tokenizer whose encodings are kept, so that the test can replay them."""

    def __init__(self, tokenizer, bos, eos, pad, add_bos_token):
        self.tokenizer = tokenizer
        self.bos, self.eos, self.pad, self.add_bos_token = bos, eos, pad, add_bos_token
        self.plain, self.special = {}, {}

    def encode(self, text, add_special_tokens):
        ids = self.tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        self.plain[text] = self.tokenizer.encode(text, add_special_tokens=False).ids
        self.special[text] = self.tokenizer.encode(text, add_special_tokens=True).ids
        return ids

    def dump(self):
        keys = ("bos", "eos", "pad", "add_bos_token", "plain", "special")
        return {key: getattr(self, key) for key in keys}


def make_sample(recorder, prompt, answer, seq_length=None, pads=False, cuts=False, answer_only=True):
    """One text, tokenized once; the target of a token is the next one; prompt targets do not count."""
    num_prompt = 0
    if answer_only:
        num_prompt = len(recorder.encode(prompt, False)) + (1 if recorder.add_bos_token else 0)
    pad = recorder.pad or recorder.eos
    recorder.encode(prompt + answer, False)
    tokens = recorder.encode(prompt + answer, True)
    if cuts and len(tokens) > seq_length:
        recorder.tokenizer.enable_truncation(seq_length)
        tokens = recorder.tokenizer.encode(prompt + answer).ids
        recorder.tokenizer.no_truncation()
    counts = [i >= num_prompt for i in range(len(tokens))]
    if pads:  # the tokenizer itself fills to seq_length, so the last real token stays an input
        counts += [False] * (seq_length - len(tokens))
        tokens = tokens + [pad] * (seq_length - len(tokens))
    inputs, labels = [], []
    for i in range(len(tokens) - 1):
        inputs.append(tokens[i])
        labels.append(tokens[i + 1] if counts[i + 1] else IGNORE)
    if pads:
        inputs += [pad] * (seq_length - len(inputs))
        labels += [IGNORE] * (seq_length - len(labels))
    return {"input_ids": inputs, "labels": labels}


def column_mapped(rows):
    cases = []
    settings = [
        ("plain", dict(), dict()),
        ("all_tokens", dict(answer_only=False), dict()),
        ("padded", dict(seq_length=256, pads=True), dict()),
        ("cut", dict(seq_length=80, cuts=True), dict()),
        ("cut_and_padded", dict(seq_length=120, cuts=True, pads=True), dict()),
        ("bos_and_eos", dict(seq_length=90, cuts=True), dict(special=True)),
        ("bos_counted", dict(), dict(special=True, add_bos_token=True)),
        ("own_pad", dict(seq_length=256, pads=True), dict(pad=7)),
    ]
    for name, options, tokenizer_options in settings:
        recorder = Recorder(
            train_tokenizer(rows, tokenizer_options.get("special", False)),
            bos=1,
            eos=2,
            pad=tokenizer_options.get("pad", 0),
            add_bos_token=tokenizer_options.get("add_bos_token", False),
        )
        if name == "bos_and_eos":
            save_tokenizer(recorder.tokenizer)
        samples = [make_sample(recorder, row["question"] + " ", row["answer"], **options) for row in rows]
        # A row without a label gives way to the next one that has some.
        has_label = [any(label != IGNORE for label in sample["labels"]) for sample in samples]
        chosen = []
        for i in range(len(rows)):
            j = i
            while not has_label[j]:
                j = (j + 1) % len(rows)
            chosen.append(j)
        cases.append(
            {
                "name": name,
                "seq_length": options.get("seq_length"),
                "pads": options.get("pads", False),
                "cuts": options.get("cuts", False),
                "answer_only": options.get("answer_only", True),
                "encoder": recorder.dump(),
                "rows": chosen,
                "samples": [samples[j] for j in chosen],
            }
        )
    return cases


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    lines = (ROOT / "recipes" / "data" / "gsm8k_train.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines[:6]]
    (OUT / "rows.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    golden = permutations()
    golden["dealt"] = dealt()
    golden["numpy"] = numpy_permutations()
    (OUT / "permutations.json").write_text(json.dumps(golden) + "\n")
    cases = {"tokenizers": tokenizers.__version__, "cases": column_mapped(rows)}
    (OUT / "column_mapped.json").write_text(json.dumps(cases, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
