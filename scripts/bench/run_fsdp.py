#!/usr/bin/env python3
"""Times FSDP2 and DDP of automodel on two ranks beside NeMo AutoModel's FSDP2, the same recipe.

The runs alternate; every round gives ratios of its own and their medians are printed. Times on a
shared machine are noisy: read the ratios, and those by CPU second before those by the clock.

Usage: scripts/bench/run_fsdp.py --automodel build/release/automodel --peer-python PYTHON

The peer's Python has nemo_automodel 0.7.0 and what its recipe for fine-tuning imports: install it
with --no-deps, then torch, transformers, torchao, torchdata, megatron-fsdp, datasets,
mistral-common, tiktoken. peer_automodel.py says what differs on a machine without CUDA.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RECIPE = ROOT / "scripts" / "bench" / "qwen3_shape.yaml"
PEER = ROOT / "scripts" / "bench" / "peer_automodel.py"
RANKS = 2
ON_TWO_RANKS = ["--step_scheduler.local_batch_size=4", "--dataset.batch_size=4"]
FSDP2 = ["--distributed.strategy=fsdp2", "--distributed.mp_policy.param_dtype=float32",
         "--distributed.mp_policy.reduce_dtype=float32"]
SKIPPED = 3  # steps before the clock starts
TICKS = os.sysconf("SC_CLK_TCK")
METRICS = ("tokens/s", "tokens/CPU s", "peak MB of a rank", "start to first step, s")


def tree_of(pid):
    """A process and all below it, from /proc: pid -> (CPU seconds, peak resident MB)."""
    parents, found = {}, {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            status = (entry / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        peak = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
        parents[int(entry.name)] = int(fields[1])
        found[int(entry.name)] = (
            (int(fields[11]) + int(fields[12])) / TICKS, int(peak[0]) / 1024 if peak else 0.0)

    def is_below(child):
        while child and child != pid:
            child = parents.get(child, 0)
        return child == pid

    return {child: value for child, value in found.items() if is_below(child)}


def seconds_of(record):
    return datetime.datetime.fromisoformat(record["timestamp"]).timestamp()


def run_one(command, steps, environment=()):
    """Runs a recipe, sampling its processes; returns the values of METRICS."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.time()
        process = subprocess.Popen(
            [*command, *ON_TWO_RANKS, f"--step_scheduler.max_steps={steps}",
             f"--checkpoint.checkpoint_dir={folder}"],
            cwd=ROOT, env={**os.environ, **dict(environment)},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        samples = []  # when, CPU seconds of all processes, peak MB of the largest
        while process.poll() is None:
            tree = tree_of(process.pid).values()
            samples.append((time.time(), sum(cpu for cpu, _ in tree), max(mb for _, mb in tree)))
            time.sleep(0.05)
        if process.returncode != 0:
            raise SystemExit(f"{command} failed with status {process.returncode}")
        lines = (pathlib.Path(folder) / "training.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]

    def cpu_at(moment):
        return min(samples, key=lambda sample: abs(sample[0] - moment))[1]

    # The last step may end while the processes do.
    timed = records[SKIPPED:-1]
    cpu = cpu_at(seconds_of(timed[-1])) - cpu_at(seconds_of(records[SKIPPED - 1]))
    return dict(zip(METRICS, (
        statistics.median(record["tps"] for record in timed),
        sum(record["num_tokens_per_step"] for record in timed) / cpu,
        max(sample[2] for sample in samples),
        seconds_of(records[0]) - begin)))


def commands(arguments):
    """Name -> command, environment."""
    ours = [arguments.automodel, "run", str(RECIPE), f"--nproc-per-node={RANKS}"]
    peer = [arguments.peer_python, "-m", "torch.distributed.run", f"--nproc-per-node={RANKS}",
            str(PEER), str(RECIPE), *FSDP2]
    offline = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(max(1, os.cpu_count() // RANKS))}
    return {
        "fsdp2": ([*ours, *FSDP2], {}),
        "ddp": ([*ours, "--distributed.strategy=ddp"], {}),
        "AutoModel fsdp2": (peer, offline),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--automodel", required=True)
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    runs = commands(arguments)
    rounds = []
    for number in range(arguments.rounds):
        rounds.append({name: run_one(command, arguments.steps, environment)
                       for name, (command, environment) in runs.items()})
        print(f"round {number + 1} of {arguments.rounds} done", file=sys.stderr)
    others = [name for name in runs if name != "fsdp2"]
    print(f"{RANKS} ranks" + " " * 18 + "".join(f"{name:>18s}" for name in runs)
          + "".join(f"{'fsdp2 / ' + name:>26s}" for name in others))
    for metric in METRICS:
        values = "".join(f"{statistics.median(r[name][metric] for r in rounds):18.2f}" for name in runs)
        ratios = "".join(
            f"{statistics.median(r['fsdp2'][metric] / r[name][metric] for r in rounds):26.2f}"
            for name in others)
        print(f"{metric:25s}{values}{ratios}")


if __name__ == "__main__":
    main()
