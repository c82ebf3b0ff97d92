#!/usr/bin/env python3
"""Makes mistakes in recipes and sees whether `automodel check` finds them.

usage: mutate_recipes.py [--count N] [--seed N] [--jobs N] [--binary PATH] [--list] RECIPES...

RECIPES are files, or folders that are searched for *.yaml. Every one is first checked as it is: an
error there, other than data or a folder that is not on this machine, is a false alarm. Then N
mutations are drawn: slips in keys, wrong types, numbers out of range, keys in another section,
targets that do not exist, keys twice, keys that clash, keys that are missing. Each mutated recipe
is given to the real program. A mistake counts as refused when the program ends with status 2 or 6
and tells something new at a place (file:line:column) of the recipe. Mistakes are made only where
the program can know better: not below `ci`, not in sections that begin with an underscore.
Prints what was missed and the counts; status 1 when less than 99.5 % were refused, or at a false
alarm.
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import yaml

# Sections whose keys are anybody's.
FREE = {"ci", "longalign", "autopipeline", "parallelizer", "distributed_config", "tokenizer"}
# Keys with values of any kind, or texts that may be anything.
ANY_VALUE = {"options", "qat_config", "mok", "cuda_graph", "tokenizer", "rope_scaling", "config"}
# Values below the least, by key.
BELOW = {
    "global_batch_size": "0", "local_batch_size": "-1", "num_epochs": "0", "max_steps": "-5",
    "ckpt_every_steps": "0", "val_every_steps": "-1", "timeout_minutes": "-1", "tp_size": "0",
    "pp_size": "-2", "cp_size": "0", "ep_size": "0", "dp_size": "-8", "lr": "-0.001",
    "eps": "-1.0e-8", "weight_decay": "-0.1", "betas": "[0.9, 1.5]", "max_norm": "0",
    "seq_len": "0", "seq_length": "-4", "num_samples": "0", "vocab_size": "0",
    "num_workers": "-1", "limit_dataset_samples": "0", "num_samples_limit": "-3",
    "pad_seq_len_divisible": "0", "packed_sequence_size": "-1", "pp_microbatch_size": "0",
    "layers_per_stage": "0", "dim": "0", "alpha": "-1", "dropout": "1.5", "warmup_steps": "-1",
    "peak_tflops": "0", "num_nodes": "0", "gc_every_steps": "0", "min_lr": "-1.0e-6",
    "lr_warmup_steps": "-1", "self_conditioning_p": "1.5", "encoder_loss_weight": "-1",
    "pad_block_size": "0", "temperature": "0", "kd_ratio": "2", "log_remote_every_steps": "0",
    "loss_average_window_steps": "0", "min_norm": "-1", "max_rows": "0", "chunk_len": "0",
}
# What clashes: (what must be in the recipe, the change).
CLASHES = [
    ({"step_scheduler.global_batch_size", "step_scheduler.local_batch_size"},
     ("step_scheduler.global_batch_size", "7919")),
    ({"distributed.strategy"}, ("distributed.strategy", "ddp\n  tp_size: 2")),
    ({"dist_env.backend"}, ("dist_env.backend", "ncll")),
    ({"loss_fn._target_"}, ("loss_fn._target_", None, "reduction: mean")),
    ({"optimizer.betas"}, ("optimizer.betas", "[0.9, 0.99, 0.999]")),
    ({"compile.mode"}, ("compile.mode", "default\n  options: {a: 1}")),
    ({"lr_scheduler.lr_decay_style"}, ("lr_scheduler.lr_decay_style", "WSD")),
    ({"model.torch_dtype"}, ("model.torch_dtype", "float31")),
    ({"checkpoint.save_consolidated"}, ("checkpoint.save_consolidated", "sometimes")),
    ({"checkpoint.model_save_format"}, ("checkpoint.model_save_format", "pickle")),
    ({"distributed.strategy"}, ("distributed.strategy", "fsdp3")),
]


class Spot:
    """A key of a recipe with the places of its key and value in the text."""

    def __init__(self, path, key, value):
        self.path, self.key, self.value = path, key, value

    @property
    def name(self):
        return self.path[-1]

    def text(self, text):
        return text[self.value.start_mark.index:self.value.end_mark.index]


def spots_of(text):
    spots = []

    def walk(node, path):
        if not isinstance(node, yaml.MappingNode):
            return
        for key, value in node.value:
            here = path + (str(key.value),)
            if len(here) == 1 and (here[0] in FREE or here[0].startswith("_")):
                continue
            if value.start_mark.index < key.start_mark.index:  # an alias: its value's place is the anchor's
                continue
            spots.append(Spot(here, key, value))
            walk(value, here)

    walk(yaml.compose(text), ())
    return spots


def replace(text, start, end, new):
    return text[:start] + new + text[end:]


def set_value(text, spot, new):
    return replace(text, spot.value.start_mark.index, spot.value.end_mark.index, new)


def line_bounds(text, spot):
    begin = text.rfind("\n", 0, spot.key.start_mark.index) + 1
    end = spot.value.end_mark.index
    end = text.find("\n", end)
    return begin, len(text) if end < 0 else end + 1


def is_block(spot, text):
    """True for a key on a line of its own, not in {braces}."""
    begin, _ = line_bounds(text, spot)
    return text[begin:spot.key.start_mark.index].strip() == ""


def is_plain_scalar(spot):
    return isinstance(spot.value, yaml.ScalarNode)


def slip(word, rng):
    """A word with a letter left out, twice, changed, or two of them swapped."""
    for _ in range(20):
        at = rng.randrange(1, len(word))
        kind = rng.randrange(4)
        if kind == 0:
            new = word[:at] + word[at + 1:]
        elif kind == 1:
            new = word[:at] + word[at] + word[at:]
        elif kind == 2:
            new = word[:at - 1] + word[at] + word[at - 1] + word[at + 1:]
        else:
            new = word[:at] + rng.choice("qxzjk") + word[at + 1:]
        if new != word and new:
            return new
    return word + "x"


def mutate_key(text, spots, rng):
    spot = rng.choice([s for s in spots if s.name != "_target_" and len(s.name) > 2
                       and not (s.path[0] == "wandb" and len(s.path) > 1)
                       and not (s.path[0].startswith("validation_dataset_") and len(s.path) == 1)])
    siblings = {s.name for s in spots}
    new = slip(spot.name, rng)
    if new in siblings or new.startswith("_"):
        return None
    return spot, replace(text, spot.key.start_mark.index, spot.key.end_mark.index, new)


def mutate_type(text, spots, rng):
    candidates = [s for s in spots if is_plain_scalar(s) and s.name not in ANY_VALUE
                  and not (s.path[0] == "wandb" and s.name not in ("enable", "project", "name"))]
    spot = rng.choice(candidates)
    tag = spot.value.tag.rsplit(":", 1)[-1]
    number = re.fullmatch(r"[-+]?[0-9][0-9_.eE+-]*", str(spot.value.value)) is not None
    if tag in ("int", "float") or number:
        new = rng.choice(["twelve", "[1, 2]", "{a: 1}", "true"])
    elif tag == "bool":
        new = rng.choice(["maybe", "7", "[true]", "{a: 1}"])
    elif tag == "null":
        return None
    else:
        new = rng.choice(["[[1], {b: 2}]", "{a: {b: 1}}"])
    return spot, set_value(text, spot, new)


def mutate_range(text, spots, rng):
    candidates = [s for s in spots if s.name in BELOW and s.path[0] != "fp8"]
    if not candidates:
        return None
    spot = rng.choice(candidates)
    if isinstance(spot.value, yaml.SequenceNode) and not spot.text(text).startswith("["):
        return None
    return spot, set_value(text, spot, BELOW[spot.name])


def mutate_place(text, spots, rng):
    """A key in another section, which has it not."""
    sections = {}
    for spot in spots:
        if len(spot.path) == 1 and isinstance(spot.value, yaml.MappingNode):
            sections[spot.name] = spot
    moved = [s for s in spots if len(s.path) == 2 and is_plain_scalar(s) and is_block(s, text)
             and s.name in BELOW]
    homes = [s for name, s in sections.items()
             if name in ("step_scheduler", "dist_env", "checkpoint", "optimizer", "lr_scheduler",
                         "dataloader", "loss_fn", "rng", "compile", "peft", "benchmark")
             and not s.value.flow_style]
    if not moved or not homes:
        return None
    spot, home = rng.choice(moved), rng.choice(homes)
    if home.name == spot.path[0]:
        return None
    has = {s.name for s in spots if s.path[:-1] == home.path}
    known_there = {("checkpoint", "enabled"), ("peft", "dim")}
    if spot.name in has or (home.name, spot.name) in known_there:
        return None
    if {home.name, spot.path[0]} <= {"dataset", "validation_dataset"}:
        return None
    if home.name == "rng" and spot.name == "seed" or spot.name == "peak_tflops":
        return None
    line = spot.text(text)
    indent = " " * home.value.value[0][0].start_mark.column
    at = home.value.start_mark.index - home.value.start_mark.column
    return home, text[:at] + f"{indent}{spot.name}: {line}\n" + text[at:]


def mutate_target(text, spots, rng):
    candidates = [s for s in spots if s.name == "_target_" or s.name.endswith("_fn")
                  and is_plain_scalar(s) or s.path == ("recipe",)]
    candidates = [s for s in candidates if is_plain_scalar(s)]
    spot = rng.choice(candidates)
    old = spot.text(text)
    kind = rng.randrange(4)
    if kind == 0:
        dot = old.rfind(".") + 1
        new = old[:dot] + slip(old[dot:], rng)
    elif kind == 1:
        new = "nonsense.foo.Bar"
    elif kind == 2:
        new = "my_code.py:Best"
    else:
        new = rng.choice(["5", "[1]", "''"])
    return spot, set_value(text, spot, new)


def mutate_twice(text, spots, rng):
    spot = rng.choice([s for s in spots if is_plain_scalar(s) and is_block(s, text)])
    begin, end = line_bounds(text, spot)
    line = text[begin:end]
    if not line.endswith("\n"):
        line += "\n"
    return spot, text[:end] + ("" if text[:end].endswith("\n") else "\n") + line + text[end:]


def mutate_clash(text, spots, rng):
    by_path = {".".join(s.path): s for s in spots}
    fitting = [change for needs, change in CLASHES if needs <= set(by_path)]
    if not fitting:
        return None
    change = rng.choice(fitting)
    spot = by_path[change[0]]
    if not is_block(spot, text):
        return None
    old = spot.text(text)
    if change[0].endswith("global_batch_size"):  # a prime: one sequence at a time fits it
        local = by_path["step_scheduler.local_batch_size"].text(text)
        if not local.isdigit() or int(local) < 2:
            return None
    if "\n  tp_size" in (change[1] or "") and "distributed.tp_size" in by_path:
        tp = by_path["distributed.tp_size"]
        text = set_value(text, tp, "2") if tp.value.start_mark.index > 0 else text
        spot = {".".join(s.path): s for s in spots_of(text)}[change[0]]
        return spot, set_value(text, spot, "ddp")
    if change[1] is None:
        indent = " " * spot.key.start_mark.column
        if any(s.path == spot.path[:-1] + ("reduction",) for s in spots):
            return None
        return spot, set_value(text, spot, f"{old}\n{indent}{change[2]}")
    return spot, set_value(text, spot, change[1])


def mutate_missing(text, spots, rng):
    needed = {("recipe",), ("model",), ("dataset",), ("optimizer",), ("model", "_target_"),
              ("dataset", "_target_"), ("optimizer", "_target_"), ("loss_fn", "_target_"),
              ("model", "pretrained_model_name_or_path"), ("dataset", "path_or_dataset_id"),
              ("dataset", "path_or_dataset"), ("dataset", "column_mapping"), ("dllm", "vocab_size")}
    # A section whose only key goes is an absent section.
    sizes = collections.Counter(s.path[:-1] for s in spots)
    spot = rng.choice([s for s in spots if s.path in needed
                       and (len(s.path) == 1 or sizes[s.path[:-1]] > 1)])
    begin, end = line_bounds(text, spot)
    if isinstance(spot.value, yaml.MappingNode):
        end = text.rfind("\n", 0, spot.value.end_mark.index) + 1
    return spot, text[:begin] + text[end:]


KINDS = [("slip in a key", mutate_key, 30), ("wrong type", mutate_type, 20),
         ("out of range", mutate_range, 12), ("another section", mutate_place, 8),
         ("bad target", mutate_target, 12), ("twice", mutate_twice, 6), ("clash", mutate_clash, 7),
         ("missing", mutate_missing, 5)]

FINDING = re.compile(r"^(.*?):(\d+):(\d+): (error|unsupported): (.*)$", re.M)


def check(binary, path, folder):
    """(status, what was told at a place as (severity, text with its path), all output)."""
    run = subprocess.run([binary, "check", path], capture_output=True, text=True, timeout=120,
                         cwd=folder, check=False)
    output = run.stdout + run.stderr
    found = collections.Counter((m[4], m[5]) for m in FINDING.finditer(output) if m[1] == path)
    return run.returncode, found, output


# What an error says of data, a template or a folder that is not on this machine.
ABSENCE = re.compile("does not exist|no such folder|No such file or directory|no file is named like"
                     "|nor the path of a file")


def is_absence(text):
    return ABSENCE.search(text) is not None


def find_recipes(arguments):
    files = []
    for argument in arguments:
        path = pathlib.Path(argument)
        files += sorted(path.rglob("*.yaml")) if path.is_dir() else [path]
    return files


def main():
    parser = argparse.ArgumentParser(description="mistakes in recipes, and who finds them")
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=20260822)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--binary", default=str(root / "build/release/automodel"))
    parser.add_argument("--list", action="store_true", help="print every mutation")
    parser.add_argument("recipes", nargs="+")
    options = parser.parse_args()

    binary = str(pathlib.Path(options.binary).resolve())
    files = find_recipes(options.recipes)
    texts = {str(f): f.read_text(encoding="utf-8") for f in files}
    rng = random.Random(options.seed)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        whole = dict(zip(texts, pool.map(lambda f: check(binary, str(pathlib.Path(f).resolve()), root),
                                         texts)))
    statuses = collections.Counter(status for status, _, _ in whole.values())
    alarms = []
    for name, (status, found, output) in whole.items():
        wrong = [t for s, t in found if s == "error" and not is_absence(t)]
        absent = [t for s, t in found if s == "error" and is_absence(t)]
        if wrong or status not in (0, 2, 6) or (status == 2 and not absent):
            alarms.append((name, status, wrong or [output[-500:]]))
    known = {name: found for name, (_, found, _) in whole.items()}

    mutations, seen = [], set()
    kinds = [k for k in KINDS for _ in range(k[2])]
    while len(mutations) < options.count:
        name = rng.choice(sorted(texts))
        kind, make, _ = rng.choice(kinds)
        spots = spots_of(texts[name])
        made = make(texts[name], spots, rng)
        if made is None or made[1] in seen or made[1] == texts[name]:
            continue
        seen.add(made[1])
        mutations.append((name, kind, made[0], made[1]))

    missed = []
    results = collections.Counter()
    refused = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:

        def judge(item):
            number, (name, kind, spot, text) = item
            path = os.path.join(folder, f"{number}.yaml")
            pathlib.Path(path).write_text(text, encoding="utf-8")
            status, found, output = check(binary, path, root)
            new = {t for t in found if found[t] > known[name][t]}
            return status, new, output

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for (name, kind, spot, text), (status, new, output) in zip(
                    mutations, pool.map(judge, enumerate(mutations))):
                results[kind] += 1
                is_refused = status in (2, 6) and bool(new)
                if is_refused:
                    refused[kind, status] += 1
                else:
                    missed.append((name, kind, ".".join(spot.path), status, text, output))
                if options.list:
                    first = sorted(new)[:1]
                    print(f"{status} {kind}: {'.'.join(spot.path)} of {name}: {first}")

    for name, kind, path, status, text, output in missed:
        old = texts[name].splitlines()
        lines = [line for line in text.splitlines() if line not in old][:3]
        print(f"missed ({kind}, status {status}): {path} of {name}: {lines}")
        if options.list:
            print(output)
    for name, status, wrong in alarms:
        print(f"false alarm (status {status}) on {name}: {wrong}")
    for kind, count in results.items():
        print(f"{kind}: {refused[kind, 2] + refused[kind, 6]} of {count} refused "
              f"({refused[kind, 2]} as mistakes, {refused[kind, 6]} as not in this version)")
    total = sum(refused.values())
    share = 100.0 * total / len(mutations)
    print(f"{len(files)} recipes as they are: {statuses[0]} right, {statuses[6]} not in this "
          f"version, {statuses[2]} without their data, {len(alarms)} false alarms")
    print(f"{total} of {len(mutations)} mutated recipes refused with a place ({share:.2f} %)")
    return 1 if share < 99.5 or alarms else 0


if __name__ == "__main__":
    sys.exit(main())
