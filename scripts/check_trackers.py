#!/usr/bin/env python3
"""Has TensorBoard, MLflow and W&B read what a run sent them, and holds it against the run's own files.

usage: check_trackers.py PROGRAM [--mlflow MLFLOW] [--wandb WANDB]

PROGRAM is automodel. TensorBoard's package must be importable (scripts/setup_peers.sh installs it).
MLFLOW is the mlflow command, of which a server is started on loopback, killed in the middle of a run
and started again. WANDB is the wandb command, which sends a run's files to a stand-in on loopback.
"""

import argparse
import collections
import http.server
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import numpy
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECIPE = ROOT / "recipes/quickstart.yaml"
NOT_METRICS = ("step", "timestamp")


def run(program, folder, *options, **variables):
    """Starts a run of the quickstart recipe."""
    command = [program, "run", RECIPE, f"--checkpoint.checkpoint_dir={folder}", *options]
    return subprocess.Popen([str(word) for word in command], cwd=ROOT, env={**os.environ, **variables},
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


class WandbServer:
    """What of a W&B server a run and `wandb sync` need, on loopback: runs by their ids."""

    def __init__(self):
        self.runs, self.is_down = {}, False
        served = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *words):
                pass

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                status, answer = 503, {}
                if not served.is_down:
                    status, answer = served.answer(self.path, body)
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def do_PUT(self):  # the package's own files of a run
                self.do_POST()

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, path, body):
        if path == "/graphql":
            request = json.loads(body)
            return 200, {"data": self.data(request["query"], request.get("variables") or {})}
        parts = path.split("/")
        if parts[-1] != "file_stream":
            return 200, {}
        stored = self.runs.get(parts[-2])
        if stored is None or parts[-4:-2] != ["someone", "check"]:
            return 404, {"errors": [{"message": "run not found"}]}
        said = json.loads(body)
        for name, file in said.get("files", {}).items():
            if name == "wandb-summary.json":
                stored["summary"] = json.loads(file["content"][-1])
            elif name == "wandb-history.jsonl":
                assert file["offset"] <= len(stored["rows"]), (file["offset"], len(stored["rows"]))
                del stored["rows"][file["offset"]:]
                stored["rows"] += [json.loads(line) for line in file["content"]]
                steps = [row["_step"] for row in stored["rows"]]
                assert steps == sorted(set(steps)), steps
        if said.get("complete"):
            stored["exit_code"] = said["exitcode"]
        return 200, {}

    def data(self, query, variables):
        name = variables.get("name")
        if "upsertBucket" in query:
            stored = self.runs.setdefault(name, {"rows": [], "summary": {}, "exit_code": None})
            if variables.get("displayName"):
                stored["display_name"] = variables["displayName"]
            return {"upsertBucket": {"inserted": True, "bucket": {
                "id": "id-" + name, "name": name, "displayName": stored.get("display_name", name),
                "description": "", "config": variables.get("config"), "sweepName": None,
                "historyLineCount": len(stored["rows"]),
                "project": {"id": "p", "name": "check", "entity": {"id": "e", "name": "someone"}}}}}
        if "RunResumeStatus" in query:
            if name not in self.runs:
                return {"model": {"bucket": None}}
            stored = self.runs[name]
            tail = json.dumps([json.dumps(row) for row in stored["rows"][-1:]])
            return {"model": {"id": "p", "bucket": {
                "id": "id-" + name, "name": name, "historyLineCount": len(stored["rows"]),
                "historyTail": tail, "eventsTail": "[]", "logLineCount": 0, "eventsLineCount": 0,
                "summaryMetrics": json.dumps(stored["summary"]), "config": "{}", "tags": []}}}
        if "createRunFiles" in query:
            return {"createRunFiles": {"runID": "r", "uploadHeaders": [], "files": [
                {"name": file, "uploadUrl": f"{self.address}/store/{file}"}
                for file in variables["files"]]}}
        if "viewer" in query:
            return {"viewer": {"id": "v", "entity": "someone", "username": "someone",
                               "flags": "{}", "teams": {"edges": []}}}
        return {}


def check_wandb(program, wandb):
    """A run that is killed and continued, offline and on a server that is down in between."""
    with tempfile.TemporaryDirectory() as place:
        server = WandbServer()
        variables = {"WANDB_BASE_URL": server.address, "WANDB_API_KEY": "k" * 40, "HOME": place}
        numbers = {}
        for mode in ("offline", "online"):
            folder = pathlib.Path(place) / mode
            options = (f"--wandb.mode={mode}", "--wandb.project=check", "--step_scheduler.val_every_steps=4",
                       "--step_scheduler.ckpt_every_steps=8", "--step_scheduler.num_epochs=100000")
            first = run(program, folder, *options, "--step_scheduler.max_steps=100000", **variables)
            while not (folder / "training.jsonl").exists() or len(records_so_far(folder)) < 13:
                time.sleep(0.02)
            server.is_down = True
            while len(records_so_far(folder)) < 19:
                time.sleep(0.02)
            first.send_signal(signal.SIGKILL)
            first.communicate()
            server.is_down = False
            steps = len(records_so_far(folder)) + 8
            finish(run(program, folder, *options, f"--step_scheduler.max_steps={steps}", **variables))
            if mode == "offline":
                assert not server.runs, server.runs
                kept = sorted((folder / "wandb").iterdir())
                assert len(kept) == 2, kept
                subprocess.run([wandb, "sync", *kept], cwd=place, env={**os.environ, **variables},
                               check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stored = server.runs.pop((folder / "wandb_run_id").read_text().strip())
            assert not server.runs, server.runs
            assert stored["exit_code"] == 0, stored["exit_code"]
            rows = {row["_step"]: row for row in stored["rows"]}
            own = {record["step"]: record for record in records(folder / "training.jsonl")}
            assert rows.keys() == own.keys(), (mode, rows.keys() ^ own.keys())
            for file, keys in (("training.jsonl", ("loss", "lr", "grad_norm")),
                               ("validation.jsonl", ("val_loss",))):
                for record in records(folder / file):
                    row = rows[record["step"]]
                    for key in keys:
                        assert row[key] == record[key], (mode, record["step"], key, row, record)
            assert stored["summary"]["loss"] == own[max(own)]["loss"], stored["summary"]
            numbers[mode] = len(rows), {name for row in stored["rows"] for name in row}
        assert numbers["offline"][1] == numbers["online"][1], numbers
        print(f"W&B: {numbers['offline'][0]} rows are the run's own through files that wandb sends, and "
              f"{numbers['online'][0]} through a server that was down in between")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--mlflow", help="the mlflow command")
    parser.add_argument("--wandb", help="the wandb command")
    arguments = parser.parse_args()
    program = arguments.program.resolve()
    check_tensorboard(program)
    if arguments.mlflow:
        check_mlflow(program, arguments.mlflow)
    if arguments.wandb:
        check_wandb(program, os.path.abspath(arguments.wandb))


if __name__ == "__main__":
    main()
