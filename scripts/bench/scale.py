#!/usr/bin/env python3
"""Shows how cost grows: tokens a second and memory over length, layers, experts and ranks; starting over ranks;
`automodel plan` over up to 16,384 ranks.

Usage: scripts/bench/scale.py [SERIES]... [--automodel FILE] [--peer-python FILE | --no-peer] [--json FILE] [--quick]

Series: length, layers, experts, ranks, plan. Where transformers can run the same work (length, layers, experts) it
runs right after. Ranks are processes of this machine: beyond its cores they share them, and what is looked at is
how long they take to start and what each keeps. --quick leaves out the largest half of each series.
"""

import argparse
import json
import pathlib
import tempfile
import time

from measure import BENCH, RECIPE, ROOT, Work, default_peer_python, machine, recipe_options, run_command, run_ours, run_peer

LENGTHS = [256, 512, 1024, 2048, 4096, 8192]
LAYERS = [2, 4, 8, 16, 32]
EXPERTS = [4, 8, 16, 32, 64]
RANKS = [1, 2, 4, 8, 16]
PLANNED_RANKS = [1, 8, 64, 512, 4096, 16384]


def shape_with(folder, base, **changes):
    """A folder with the config.json of `base` and some values changed."""
    config = json.loads((BENCH / base / "config.json").read_text())
    config.update(changes)
    path = pathlib.Path(folder) / "_".join(f"{key}_{value}" for key, value in changes.items())
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    return path


def works(series, folder, points):
    """Point -> Work of a series in which both sides train."""
    if series == "length":
        longest = max(points)
        shape = shape_with(folder, "qwen3_shape", max_position_embeddings=longest)
        return {point: Work(shape, 1, point, steps=6) for point in points}
    if series == "layers":
        return {point: Work(shape_with(folder, "qwen3_shape", num_hidden_layers=point), 4, 256, steps=8)
                for point in points}
    return {point: Work(shape_with(folder, "qwen3_moe_shape", num_experts=point), 4, 256, steps=8)
            for point in points}


def train_series(series, points, arguments):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for point, work in works(series, folder, points).items():
            mine = run_ours(arguments.automodel, work)
            row = {series: point, "tokens_per_second": mine.tokens_per_second, "peak_mb": mine.peak_mb}
            if arguments.peer:
                other = run_peer(arguments.peer, work)
                row |= {"peer_tokens_per_second": other.tokens_per_second, "peer_peak_mb": other.peak_mb,
                        "ratio": mine.tokens_per_second / other.tokens_per_second,
                        "memory_ratio": mine.peak_mb / other.peak_mb}
            rows.append(row)
    return rows


def rank_series(points, arguments):
    rows = []
    for ranks in points:
        work = Work(BENCH / "qwen3_shape", 16, 64, steps=6)
        each = work.batch // ranks
        mine = run_ours(arguments.automodel, work, [
            f"--nproc-per-node={ranks}", "--distributed.strategy=fsdp2",
            f"--step_scheduler.local_batch_size={each}", f"--dataset.batch_size={each}"])
        rows.append({"ranks": ranks, "tokens_per_second": mine.tokens_per_second, "peak_mb": mine.peak_mb,
                     "first_step_seconds": mine.first_step_seconds})
    return rows


def plan_series(points, arguments):
    rows = []
    for ranks in points:
        work = Work(BENCH / "qwen3_shape", 1, 64, steps=1)
        begin = time.perf_counter()
        _, peak_mb = run_command([arguments.automodel, "plan", str(RECIPE), *recipe_options(work),
                                  "--distributed.strategy=fsdp2", f"--world-size={ranks}",
                                  f"--step_scheduler.global_batch_size={ranks}"])
        rows.append({"ranks": ranks, "seconds": time.perf_counter() - begin, "peak_mb": peak_mb})
    return rows


def print_rows(series, rows):
    keys = list(rows[0])
    print(f"\n{series}")
    print("".join(f"{key:>24s}" for key in keys))
    for row in rows:
        print("".join(f"{row[key]:24d}" if isinstance(row[key], int) else f"{row[key]:24.2f}" for key in keys))


def parse_arguments(names):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", nargs="*", metavar="SERIES", help=", ".join(names))
    parser.add_argument("--automodel", default=str(ROOT / "build/release/automodel"))
    parser.add_argument("--peer-python")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.series if name not in names]
    if unknown:
        parser.error(f"no series {', '.join(unknown)}; there are {', '.join(names)}")
    arguments.peer = None if arguments.no_peer else arguments.peer_python or default_peer_python()
    return arguments


def main():
    series = {
        "length": (LENGTHS, lambda points, given: train_series("length", points, given)),
        "layers": (LAYERS, lambda points, given: train_series("layers", points, given)),
        "experts": (EXPERTS, lambda points, given: train_series("experts", points, given)),
        "ranks": (RANKS, rank_series),
        "plan": (PLANNED_RANKS, plan_series),
    }
    arguments = parse_arguments(list(series))
    found = {}
    print(machine())
    for name, (points, measure) in series.items():
        if arguments.series and name not in arguments.series:
            continue
        if arguments.quick:
            points = points[:(len(points) + 1) // 2]
        found[name] = measure(points, arguments)
        print_rows(name, found[name])
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({"machine": machine(), **found}, indent=2))


if __name__ == "__main__":
    main()
