#!/usr/bin/env python3
"""Writes tests/golden/pipeline/schedules.jsonl: the order in which torch computes.

For every schedule of torch.distributed.pipelining and a set of shapes, the actions of every rank:
of GPipe and 1F1B as they run (1F1B's own listing is off by one on the last rank), of the others as
they are listed, without empty slots. Run with torch 2.11.0.
"""

import json
import pathlib

import torch
from torch.distributed.pipelining import schedules

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHAPES = [
    (ranks, stages, microbatches)
    for ranks in (1, 2, 3, 4, 8)
    for stages in (1, 2, 3)
    for microbatches in (1, 2, 3, 4, 5, 6, 8, 12, 16)
]


def texts(actions):
    return " ".join(
        str(action)
        for action in actions
        if action is not None and action.computation_type is not schedules.REDUCE_GRAD
    )


def blank(name, ranks, stages, microbatches):
    """A schedule of a shape without stages, which only running one needs."""
    schedule = object.__new__(schedules.get_schedule_class(name))
    schedule._n_microbatches = microbatches
    schedule._num_stages = schedule.num_stages = ranks * stages
    schedule._stages = [None] * stages
    schedule.pp_group_size = ranks
    schedule.n_local_stages = stages
    schedule.number_of_rounds = max(1, microbatches // ranks)
    schedule.microbatches_per_round = microbatches // schedule.number_of_rounds
    return schedule


class RecordingStage:
    """A stage that computes and sends nothing, and notes what it is asked for."""

    def __init__(self, index):
        self.stage_index = index
        self.actions = []

    def forward_one_chunk(self, microbatch, *args, **kwargs):
        self.actions.append(schedules._Action(self.stage_index, schedules.F, microbatch))

    def backward_one_chunk(self, microbatch, *args, **kwargs):
        self.actions.append(schedules._Action(self.stage_index, schedules.B, microbatch))

    def __getattr__(self, name):
        if name.endswith("_ops"):
            return lambda microbatch: []
        if name == "perform_reduce_grad":
            return lambda factor: None
        raise AttributeError(name)


def run_single(name, rank, ranks, microbatches):
    schedule = blank(name, ranks, 1, microbatches)
    schedule._stage = RecordingStage(rank)
    schedule.scale_grads = False
    schedule._has_backward = True
    schedule._stage_initialized = schedule._stage_forward_initialized = True
    blanks = [()] * microbatches
    schedule._check_inputs = lambda *args: (blanks, [{}] * microbatches)
    for skipped in ("_initialize_stage", "_maybe_compute_loss", "_maybe_get_loss", "_update_losses"):
        setattr(schedule, skipped, lambda *args, **kwargs: None)
    schedule._step_microbatches(blanks, [{}] * microbatches)
    return schedule._stage.actions


def order_of(name, ranks, stages, microbatches):
    schedule = blank(name, ranks, stages, microbatches)
    if name in ("GPipe", "1F1B"):
        if stages != 1 or (name == "1F1B" and microbatches < ranks):
            return None
        return {rank: run_single(name, rank, ranks, microbatches) for rank in range(ranks)}
    if stages == 1 or (name == "ZBVZeroBubble" and stages != 2):
        return None
    is_in_rounds = name.startswith("Interleaved")
    if is_in_rounds and microbatches % schedule.number_of_rounds != 0:
        return None
    order = {rank: schedule._calculate_single_rank_operations(rank) for rank in range(ranks)}
    if name == "InterleavedZeroBubble":
        schedule.pipeline_order = order
        order = schedule._add_bubbles_to_actions(ranks * stages)
    return order


def main():
    names = ["GPipe", "1F1B", "LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble"]
    lines = []
    for name in names:
        for ranks, stages, microbatches in SHAPES:
            order = order_of(name, ranks, stages, microbatches)
            if order is None:
                continue
            row = {
                "schedule": name,
                "ranks": ranks,
                "stages_per_rank": stages,
                "microbatches": microbatches,
                "actions": [texts(order[rank]) for rank in range(ranks)],
            }
            lines.append(json.dumps(row))
    folder = ROOT / "tests/golden/pipeline"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schedules.jsonl").write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} schedules of torch {torch.__version__}")


if __name__ == "__main__":
    main()
