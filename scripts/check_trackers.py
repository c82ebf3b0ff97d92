#!/usr/bin/env python3
"""Has TensorBoard and MLflow read what a run sent them, and holds it against the run's own files.

usage: check_trackers.py PROGRAM [--mlflow MLFLOW]

PROGRAM is automodel. TensorBoard's package must be importable (scripts/setup_peers.sh installs it).
MLFLOW is the mlflow command, of which a server is started on loopback, killed in the middle of a run
and started again; without it only TensorBoard is asked.
"""

import argparse
import collections
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import numpy
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECIPE = ROOT / "recipes/quickstart.yaml"
NOT_METRICS = ("step", "timestamp")


def run(program, folder, *options):
    """Starts a run of the quickstart recipe."""
    command = [program, "run", RECIPE, f"--checkpoint.checkpoint_dir={folder}", *options]
    return subprocess.Popen([str(word) for word in command], cwd=ROOT,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process):
    """Waits for a run's end and returns what it said."""
    said = process.communicate()[0]
    if process.returncode != 0:
        sys.exit(f"{said}\nstatus {process.returncode}")
    return said


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def wanted_scalars(folder):
    """{tag: [(step, float32)]} of the run's own files."""
    wanted = {}
    for file, prefix in (("training.jsonl", "train/"), ("validation.jsonl", "val/")):
        for record in records(folder / file):
            for key, value in record.items():
                if key in NOT_METRICS or isinstance(value, (str, type(None))):
                    continue
                tag = prefix + (key.removeprefix("val_") if prefix == "val/" else key)
                wanted.setdefault(tag, []).append((record["step"], float(numpy.float32(value))))
    return wanted


def check_tensorboard(program):
    """A run that is killed, and continued from its last save: a file each, read as one curve."""
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place) / "run"
        options = ("--tensorboard.enable=true", "--tensorboard.histograms_every_steps=4", "--step_scheduler.val_every_steps=4",
                   "--step_scheduler.ckpt_every_steps=8")
        first = run(program, folder, *options, "--step_scheduler.max_steps=100000",
                    "--step_scheduler.num_epochs=100000")
        while not (folder / "training.jsonl").exists() or len(records_so_far(folder)) < 12:
            time.sleep(0.02)
        first.send_signal(signal.SIGKILL)
        first.communicate()
        steps = len(records_so_far(folder)) + 8
        finish(run(program, folder, *options, f"--step_scheduler.max_steps={steps}",
                   "--step_scheduler.num_epochs=100000"))
        logs = folder / "tensorboard"
        assert len(list(logs.iterdir())) == 2, list(logs.iterdir())
        events = EventAccumulator(str(logs), size_guidance={"scalars": 0, "tensors": 0,
                                                            "histograms": 0}).Reload()
        found = {tag: [(point.step, point.value) for point in events.Scalars(tag)]
                 for tag in events.Tags()["scalars"]}
        wanted = wanted_scalars(folder)
        assert found.keys() == wanted.keys(), (sorted(found), sorted(wanted))
        for tag, points in wanted.items():
            assert found[tag] == points, (tag, found[tag], points)
        text = events.Tensors("recipe/text_summary")[-1].tensor_proto.string_val[0].decode()
        assert text.startswith("```yaml\nrecipe:"), text
        check_histograms(events, records(folder / "training.jsonl"))
        print(f"TensorBoard: {len(found)} curves of {len(records(folder / 'training.jsonl'))} steps "
              "are the run's own")


def check_histograms(events, trained):
    """The squares of all layers' gradients add up to the squared norm of the step."""
    squares = collections.defaultdict(float)
    for tag in events.Tags()["histograms"]:
        assert tag.startswith("gradients/"), tag
        for point in events.Histograms(tag):
            value = point.histogram_value
            assert sum(value.bucket) == value.num, (tag, point.step)
            assert value.min <= value.bucket_limit[0] and value.max <= value.bucket_limit[-1]
            squares[point.step] += value.sum_squares
    norms = {record["step"]: record["grad_norm"] for record in trained}
    assert squares.keys() == {step for step in norms if step % 4 == 0}, squares.keys()
    for step, square in squares.items():
        assert abs(square ** 0.5 / norms[step] - 1) < 1e-6, (step, square ** 0.5, norms[step])


def records_so_far(folder):
    """Whole records of a run that is writing."""
    text = (folder / "training.jsonl").read_text()
    return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]


class Server:
    """An MLflow server on loopback, which keeps its runs in a folder."""

    def __init__(self, mlflow, folder):
        self.mlflow, self.folder, self.process = mlflow, folder, None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"

    def start(self):
        self.process = subprocess.Popen(
            [self.mlflow, "server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1",
             "--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db",
             "--default-artifact-root", str(self.folder)],
            cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True)
        while True:
            try:
                return urllib.request.urlopen(self.uri + "/health", timeout=5).read()
            except OSError:
                assert self.process.poll() is None, "mlflow server did not start"
                time.sleep(0.2)

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def ask(self, path, body=None):
        request = urllib.request.Request(
            f"{self.uri}/api/2.0/mlflow/{path}", headers={"Content-Type": "application/json"},
            data=None if body is None else json.dumps(body).encode())
        return json.load(urllib.request.urlopen(request, timeout=60))


def check_mlflow(program, mlflow):
    """A run whose server is killed in its middle and comes back, then a run that continues it."""
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place) / "run"
        server = Server(mlflow, place)
        server.start()
        options = (f"--mlflow.tracking_uri={server.uri}", "--mlflow.experiment_name=check",
                   "--step_scheduler.val_every_steps=40", "--step_scheduler.num_epochs=100")
        first = run(program, folder, *options, "--step_scheduler.max_steps=400")
        while not (folder / "mlflow_run_id").exists() or len(records_so_far(folder)) < 40:
            time.sleep(0.05)
        server.kill()
        steps = len(records_so_far(folder))
        while len(records_so_far(folder)) < steps + 80:  # the run goes on without it
            time.sleep(0.05)
        server.start()
        said = finish(first)
        assert "trying again while the run goes on" in said, said
        assert "MLflow lacks" not in said, said
        finish(run(program, folder, *options, "--step_scheduler.max_steps=420"))
        run_id = (folder / "mlflow_run_id").read_text().strip()
        found = server.ask("runs/search", {"experiment_ids": ["1"]})["runs"]
        assert [one["info"]["run_id"] for one in found] == [run_id], found
        assert found[0]["info"]["status"] == "FINISHED", found[0]["info"]
        for file, keys in (("training.jsonl", ("loss", "lr", "grad_norm")),
                           ("validation.jsonl", ("val_loss",))):
            for key in keys:
                history = server.ask("metrics/get-history"
                                     f"?run_id={run_id}&metric_key={key}&max_results=10000")
                told = {int(point["step"]): float(point["value"]) for point in history["metrics"]}
                own = {record["step"]: record[key] for record in records(folder / file)}
                assert told == own, (key, set(told) ^ set(own))
        server.kill()
        print(f"MLflow: {len(records(folder / 'training.jsonl'))} steps are the run's own, "
              "through a server that was killed in between")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--mlflow", help="the mlflow command")
    arguments = parser.parse_args()
    program = arguments.program.resolve()
    check_tensorboard(program)
    if arguments.mlflow:
        check_mlflow(program, arguments.mlflow)


if __name__ == "__main__":
    main()
