#!/usr/bin/env python3
"""Times automodel beside transformers, alternating, in one run, and prints ratios.

Usage: scripts/bench/run.py --automodel build/release/automodel --peer-python PYTHON [--rounds 3]
       [--shape qwen3_shape | qwen3_moe_shape | qwen3_lora_shape | gpt2_shape] [--batch 8] [--length 256] [--lora-rank 8]
       [--dtype bfloat16]

With --lora-rank both train adapters of all projections; the peer's Python then has peft too.

Needs a Python with torch and transformers for the peer. Times on a shared machine are noisy: read
the ratios, not the numbers.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RECIPE = ROOT / "scripts" / "bench" / "qwen3_shape.yaml"
SHAPES = ROOT / "scripts" / "bench"


def peak_rss_mb(arguments, **options):
    """Runs a command and returns (seconds, peak resident MB, stdout)."""
    begin = time.perf_counter()
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, cwd=ROOT, text=True, **options)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    if status != 0:
        raise SystemExit(f"{arguments} failed with status {status}\n{output}")
    return seconds, usage.ru_maxrss / 1024, output


def lora_options(rank):
    """What makes a run train adapters."""
    return [f"--peft.dim={rank}", f"--peft.alpha={4 * rank}"] if rank else []


def batch_options(batch, length, shape):
    vocab_size = json.loads((SHAPES / shape / "config.json").read_text())["vocab_size"]
    return [f"--dataset.seq_len={length}", f"--dataset.vocab_size={vocab_size}",
            f"--step_scheduler.global_batch_size={batch}", f"--step_scheduler.local_batch_size={batch}",
            f"--dataset.batch_size={batch}"]


def run_ours(binary, shape, steps, extra=()):
    with tempfile.TemporaryDirectory() as folder:
        command = [binary, "run", str(RECIPE), f"--step_scheduler.max_steps={steps}",
                   f"--model.config.pretrained_model_name_or_path={SHAPES / shape}",
                   f"--checkpoint.checkpoint_dir={folder}", *extra]
        seconds, memory, _ = peak_rss_mb(command)
        lines = (pathlib.Path(folder) / "training.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        rates = [record["tps"] for record in records[3:]]
        return {
            "whole_run_seconds": seconds,
            "tokens_per_second": statistics.median(rates) if rates else None,
            "peak_rss_mb": memory,
        }


def run_peer(python, arguments, steps):
    command = [python, str(ROOT / "scripts/bench/peer_transformers.py"), "--config",
               str(SHAPES / arguments.shape), "--steps", str(steps), "--batch", str(arguments.batch),
               "--length", str(arguments.length),
               "--lora-rank", str(arguments.lora_rank), "--dtype", arguments.dtype]
    seconds, memory, output = peak_rss_mb(command, stderr=subprocess.DEVNULL)
    result = json.loads(output.strip().splitlines()[-1])
    result["whole_run_seconds"] = seconds
    result["peak_rss_mb"] = memory
    return result


def median_of(rounds, key):
    return statistics.median(entry[key] for entry in rounds)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--automodel", required=True)
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--shape", default="qwen3_shape", help="folder beside this file")
    parser.add_argument("--batch", type=int, default=8, help="sequences of a step")
    parser.add_argument("--length", type=int, default=256, help="tokens of a sequence")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"], help="of the weights")
    parser.add_argument("--lora-rank", type=int, default=0, help="train adapters of this rank")
    arguments = parser.parse_args()
    ours, peer, first_ours, first_peer, four = [], [], [], [], []
    for _ in range(arguments.rounds):
        adapters = [*lora_options(arguments.lora_rank), f"--model.torch_dtype={arguments.dtype}"]
        ours.append(run_ours(arguments.automodel, arguments.shape, arguments.steps,
                             [*batch_options(arguments.batch, arguments.length, arguments.shape), *adapters]))
        peer.append(run_peer(arguments.peer_python, arguments, arguments.steps))
        tiny = ["--dataset.seq_len=16", "--dataset.batch_size=2", *adapters]
        first_ours.append(run_ours(arguments.automodel, arguments.shape, 1, tiny)["whole_run_seconds"])
        four.append(run_ours(arguments.automodel, arguments.shape, 1, [
            *tiny, "--nproc-per-node", "4", "--step_scheduler.local_batch_size=2",
        ])["whole_run_seconds"])
        first_peer.append(run_peer(arguments.peer_python, arguments, 1)["first_step_seconds"])
    rows = [
        ("tokens/s", median_of(ours, "tokens_per_second"), median_of(peer, "tokens_per_second")),
        ("peak MB", median_of(ours, "peak_rss_mb"), median_of(peer, "peak_rss_mb")),
        ("start to first step, s (ours: whole one-step run)", statistics.median(first_ours),
         statistics.median(first_peer)),
        ("the same on 4 ranks, s", statistics.median(four), float("nan")),
    ]
    print(f"{'':52s}{'automodel':>12s}{'transformers':>14s}{'ratio':>8s}")
    for name, mine, other in rows:
        print(f"{name:52s}{mine:12.2f}{other:14.2f}{mine / other:8.2f}")


if __name__ == "__main__":
    main()
