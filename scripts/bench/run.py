#!/usr/bin/env python3
"""Times automodel beside transformers, PEFT and NeMo AutoModel: all rows of the table, alternating, in one run.

Usage: scripts/bench/run.py [ROW]... [--rounds 3] [--automodel FILE] [--peer-python FILE]
                            [--automodel-peer-python FILE] [--json FILE] [--list]

A round runs every row once, ours and the peer right after each other, and gives a ratio of its own; printed are
the medians and the least and greatest ratio of the rounds. Times on a shared machine are noisy: read the ratios,
not the numbers. The peers' Python is made by scripts/setup_peers.sh where none is named. The row fsdp2 needs one
with NeMo AutoModel, as run_fsdp.py says.
"""

import argparse
import dataclasses
import json
import statistics
import sys

import run_fsdp
from measure import BENCH, ROOT, Measured, Work, default_peer_python, machine, run_ours, run_peer


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    text: str
    work: Work
    is_first_step: bool = False  # of interest is the time to the first step


ROWS = [
    Row("qwen3", "Qwen3 5.8M, 8 x 256, float32", Work(BENCH / "qwen3_shape")),
    Row("qwen3_bf16", "the same, bfloat16", Work(BENCH / "qwen3_shape", dtype="bfloat16")),
    Row("gpt2", "GPT-2 124M, 4 x 1024, float32", Work(BENCH / "gpt2_shape", 4, 1024, steps=6)),
    Row("gpt2_bf16", "the same, bfloat16", Work(BENCH / "gpt2_shape", 4, 1024, "bfloat16", steps=6)),
    Row("moe", "Qwen3-MoE 16M, 8 x 256, float32", Work(BENCH / "qwen3_moe_shape")),
    Row("moe_bf16", "the same, bfloat16", Work(BENCH / "qwen3_moe_shape", dtype="bfloat16")),
    Row("lora", "LoRA r 8, 512 x 8 layers, 4 x 256, float32", Work(BENCH / "qwen3_lora_shape", 4, lora_rank=8)),
    Row("lora_bf16", "the same, bfloat16",
        Work(BENCH / "qwen3_lora_shape", 4, dtype="bfloat16", lora_rank=8)),
    Row("launch", "launch to the end of the first step", Work(BENCH / "qwen3_shape", 2, 16, steps=1),
        is_first_step=True),
]
FSDP2_TEXT = "FSDP2, 2 ranks x 1 thread, beside AutoModel"


def run_fsdp2(arguments):
    """The row of two ranks: both sides as `Measured`."""
    runs = run_fsdp.commands(argparse.Namespace(automodel=arguments.automodel,
                                                peer_python=arguments.automodel_peer_python))
    sides = []
    for name in ("fsdp2", "AutoModel fsdp2"):
        command, environment = runs[name]
        values = run_fsdp.run_one(command, 10, environment)
        sides.append(Measured(values["tokens/s"], values["peak MB of a rank"], values["start to first step, s"]))
    return sides


def spread(values):
    return {"median": statistics.median(values), "least": min(values), "greatest": max(values)}


def summary_of(name, text, is_first_step, rounds):
    """What a row has come to, from its rounds' pairs of `Measured`."""
    key = "first_step_seconds" if is_first_step else "tokens_per_second"
    ours = [getattr(mine, key) for mine, _ in rounds]
    peer = [getattr(other, key) for _, other in rounds]
    return {
        "row": name, "text": text, "unit": "s" if is_first_step else "tokens/s",
        "ours": statistics.median(ours), "peer": statistics.median(peer),
        "ratio": spread([mine / other for mine, other in zip(ours, peer)]),
        "ours_peak_mb": statistics.median(mine.peak_mb for mine, _ in rounds),
        "peer_peak_mb": statistics.median(other.peak_mb for _, other in rounds),
        "memory_ratio": spread([mine.peak_mb / other.peak_mb for mine, other in rounds]),
    }


def print_table(summaries):
    print(f"{'':46s}{'':9s}{'ours':>9s}{'peer':>9s}{'ratio':>7s}{'of rounds':>13s}{'MB':>8s}{'peer':>8s}{'ratio':>7s}")
    for row in summaries:
        ratio = row["ratio"]
        between = f"{ratio['least']:.2f}-{ratio['greatest']:.2f}"
        print(f"{row['text']:46s}{row['unit']:>9s}{row['ours']:9.2f}{row['peer']:9.2f}{ratio['median']:7.2f}"
              f"{between:>13s}{row['ours_peak_mb']:8.0f}{row['peer_peak_mb']:8.0f}{row['memory_ratio']['median']:7.2f}")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="names of rows; all of them without")
    parser.add_argument("--automodel", default=str(ROOT / "build/release/automodel"))
    parser.add_argument("--peer-python", help="a Python with torch, transformers and peft")
    parser.add_argument("--automodel-peer-python", help="a Python with nemo_automodel, for the row fsdp2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="also write the numbers of all rounds there")
    parser.add_argument("--list", action="store_true", help="name the rows")
    arguments = parser.parse_args()
    known = [row.name for row in ROWS] + ["fsdp2"]
    unknown = [name for name in arguments.rows if name not in known]
    if unknown:
        parser.error(f"no row {', '.join(unknown)}; there are {', '.join(known)}")
    if "fsdp2" in arguments.rows and not arguments.automodel_peer_python:
        parser.error("the row fsdp2 needs --automodel-peer-python")
    return arguments


def main():
    arguments = parse_arguments()
    if arguments.list:
        for row in ROWS:
            print(f"{row.name:12s}{row.text}")
        print(f"{'fsdp2':12s}{FSDP2_TEXT}")
        return
    python = arguments.peer_python or default_peer_python()
    rows = [row for row in ROWS if not arguments.rows or row.name in arguments.rows]
    has_fsdp2 = arguments.automodel_peer_python and (not arguments.rows or "fsdp2" in arguments.rows)
    rounds = {row.name: [] for row in rows}
    if has_fsdp2:
        rounds["fsdp2"] = []
    for number in range(arguments.rounds):
        for row in rows:
            ours, peer = run_ours(arguments.automodel, row.work), run_peer(python, row.work)
            rounds[row.name].append((ours, peer))
            print(f"round {number + 1} of {arguments.rounds}: {row.name}: "
                  f"{ours.tokens_per_second:.0f} beside {peer.tokens_per_second:.0f} tokens/s, "
                  f"{ours.peak_mb:.0f} beside {peer.peak_mb:.0f} MB", file=sys.stderr, flush=True)
        if has_fsdp2:
            rounds["fsdp2"].append(run_fsdp2(arguments))
    summaries = [summary_of(row.name, row.text, row.is_first_step, rounds[row.name]) for row in rows]
    if has_fsdp2:
        summaries.append(summary_of("fsdp2", FSDP2_TEXT, False, rounds["fsdp2"]))
    print(machine())
    print_table(summaries)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"machine": machine(), "rows": summaries}, file, indent=2)


if __name__ == "__main__":
    main()
