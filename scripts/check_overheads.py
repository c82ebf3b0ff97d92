#!/usr/bin/env python3
"""Measures what it costs to look at a very long run, and fails past a limit.

usage: check_overheads.py PROGRAM [--steps N] [--folder DIR]

PROGRAM is automodel. A folder of a run of a million steps with events is written to DIR (default: a
temporary one; one that is there is used again), then are measured:

- automodel report: seconds, and the page's size; on a machine that others keep busy its CPU time counts;
- automodel serve: memory over idle while a hundred connections of one address hold its page, which
  grows meanwhile;
- automodel watch on a terminal: its share of a core over twenty seconds while the run goes on.

Prints the numbers; exit status 1 when one is beyond its limit.
"""

import argparse
import fcntl
import json
import os
import pathlib
import pty
import re
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

MOST_REPORT_SECONDS = 3.0
MOST_PAGE_BYTES = 5_000_000
MOST_SERVE_BYTES = 50_000_000
MOST_WATCH_SHARE = 0.02
NUM_CONNECTIONS = 100
WATCH_SECONDS = 20
START = 1_785_542_400  # 2026-08-01
NUM_EXPERTS, NUM_LAYERS = 64, 24


def timestamp(second):
    millis = int(second * 1000) % 1000
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)) + f".{millis:03d}Z"


def step_line(step):
    """A record as a run writes it, with a value now and then that stands out."""
    noise = (step * 2654435761 % 1000) / 1000
    loss = 2 + 8 / (1 + step / 2000) + 0.3 * noise + (5 if step % 77777 == 5 else 0)
    return (f'{{"step": {step}, "epoch": 0, "timestamp": "{timestamp(START + step * 0.5)}", "loss": {loss}, '
            f'"grad_norm": {0.5 + noise}, "lr": {0.001 * (1 - step / 1.1e6)}, "mem": 0.15719985961914062, '
            f'"tps": {40000 + 9000 * noise}, "tps_per_gpu": {40000 + 9000 * noise}, "mfu": {30 + 5 * noise}, '
            f'"num_tokens_per_step": 20480, "num_label_tokens": 12000, "data_seconds": {0.01 + 0.05 * noise}, '
            f'"forward_backward_seconds": {0.3 + 0.05 * noise}, "update_seconds": 0.05, "wait_seconds": 0.01}}\n')


def event_line(name, step, **fields):
    return json.dumps({"event": name, "timestamp": timestamp(START + step * 0.5), "step": step, **fields}) + "\n"


def loads(step):
    """Shares of tokens that experts get, some more than others."""
    layers = []
    for layer in range(NUM_LAYERS):
        weights = [1 + (layer * 31 + expert * 17 + step) % 7 for expert in range(NUM_EXPERTS)]
        layers.append({"layer": layer, "shares": [weight / sum(weights) for weight in weights]})
    return layers


def events_of(num_steps):
    yield event_line("start", 0, num_ranks=8)
    for step in range(0, num_steps, 100):
        yield event_line("validation", step, seconds=1.5, losses={"default": 2.5})
        if step % 1000 == 0:
            yield event_line("save", step, seconds=2.0, path=f"checkpoints/epoch_0_step_{step}")
        if step % 10_000 == 0:
            yield event_line("expert_load", step, layers=loads(step))
            yield event_line("memory", step, peak_bytes=168_000_000,
                             parts=[{"name": "parameters", "bytes": 40_000_000}])
        if step % 30_000 == 100:
            yield event_line("advice", step, kind="spike", text="the loss is above what is usual")
        if step % 50_000 == 300:
            yield event_line("skipped_update", step, grad_norm=30.0, usual_norm=1.0, loss=9.0)
    yield event_line("data", num_steps - 1, num_sequences=80 * num_steps, num_tokens=20480 * num_steps,
                     num_label_tokens=12000 * num_steps, num_padding_tokens=500 * num_steps,
                     lengths=[[2 ** k, 1000 * (12 - abs(k - 8))] for k in range(4, 13)])


def write_run(folder, num_steps):
    """A run that goes on: it has no end."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "training.jsonl").exists():
        return
    with open(folder / "training.jsonl", "w") as file:
        for step in range(num_steps):
            file.write(step_line(step))
    with open(folder / "events.jsonl", "w") as file:
        file.writelines(events_of(num_steps))
    with open(folder / "validation.jsonl", "w") as file:
        for step in range(0, num_steps, 100):
            file.write(f'{{"step": {step}, "val_loss": {2.5 + 8 / (1 + step / 2000)}}}\n')
    values = {f"section.key{i}": {"value": i, "origin": "default"} for i in range(200)}
    plan = {"most_bytes": 200_000_000, "parts": [{"name": "parameters", "bytes": 40_000_000}]}
    (folder / "run.json").write_text(json.dumps(
        {"format": 1, "version": "0.1.0", "max_steps": 2 * num_steps, "values": values, "plan": plan}))


class Growth:
    """Adds a step to a run twice a second, while it lives."""

    def __init__(self, folder, first):
        self.file = open(folder / "training.jsonl", "a")
        self.step, self.stop = first, threading.Event()
        self.thread = threading.Thread(target=self.grow)

    def grow(self):
        while not self.stop.wait(0.5):
            self.file.write(step_line(self.step))
            self.file.flush()
            self.step += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()
        self.file.close()


def resident_bytes(pid, field="VmRSS"):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(re.search(rf"{field}:\s+(\d+) kB", status)[1])


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_report(program, folder):
    """The fastest of five, so that others on the machine count less: seconds, those of CPU time, the page's size."""
    best, best_cpu, size = float("inf"), float("inf"), 0
    for _ in range(5):
        begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        size = len(subprocess.run([program, "report", folder], check=True, stdout=subprocess.PIPE).stdout)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, time.monotonic() - begin)
        best_cpu = min(best_cpu, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best, best_cpu, size


def ask(connection, path):
    """Sends a request and reads its whole answer; the connection stays open."""
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    with connection.makefile("rb") as answer:
        status = answer.readline().decode()
        length = 0
        while (line := answer.readline().strip()):
            name, _, value = line.decode().partition(":")
            length = int(value) if name.lower() == "content-length" else length
        body = answer.read(length)
    if " 200 " not in status or len(body) != length:
        raise SystemExit(f"{path}: {status}")


def measure_serve(program, folder, num_steps):
    """Bytes over idle at the end, and at the highest."""
    server = subprocess.Popen([program, "serve", folder.parent, "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        port = int(re.search(r":(\d+)/", server.stdout.readline())[1])
        idle = resident_bytes(server.pid)
        connections = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(NUM_CONNECTIONS)]
        with Growth(folder, num_steps):
            for _ in range(3):
                for connection in connections:
                    ask(connection, f"/runs/{folder.name}")
                time.sleep(2)
            held = resident_bytes(server.pid)
        highest = resident_bytes(server.pid, "VmHWM")
        for connection in connections:
            connection.close()
        return held - idle, highest - idle, idle
    finally:
        server.terminate()
        server.wait()


def measure_watch(program, folder, num_steps):
    """The share of a core over some seconds, once the files have been read."""
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
    process = subprocess.Popen([program, "watch", folder], stdout=terminal)
    os.close(terminal)

    pictures = threading.Semaphore(0)

    def drain():
        try:
            while drawn := os.read(main, 1 << 16):
                for _ in range(drawn.count(b"\x1b[2J")):
                    pictures.release()
        except OSError:
            pass  # the terminal's end

    threading.Thread(target=drain, daemon=True).start()
    try:
        with Growth(folder, num_steps):
            pictures.acquire()  # the million steps are read
            begin, before = time.monotonic(), cpu_seconds(process.pid)
            time.sleep(WATCH_SECONDS)
            return (cpu_seconds(process.pid) - before) / (time.monotonic() - begin)
    finally:
        process.terminate()
        process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--folder", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or pathlib.Path(temporary)) / "long"
        write_run(folder, options.steps)
        seconds, cpu, size = measure_report(options.program, folder)
        held, highest, idle = measure_serve(options.program, folder, options.steps)
        share = measure_watch(options.program, folder, options.steps)
    is_busy = os.getloadavg()[0] > os.cpu_count()
    numbers = [("report: seconds", cpu if is_busy else seconds, MOST_REPORT_SECONDS,
                f"{seconds:.2f} (of CPU time: {cpu:.2f}{'; others use the machine' if is_busy else ''})"),
               ("report: page, MB", size, MOST_PAGE_BYTES, f"{size / 1e6:.2f}"),
               (f"serve: MB over {idle / 1e6:.0f} MB idle, {NUM_CONNECTIONS} connections", held, MOST_SERVE_BYTES,
                f"{held / 1e6:.1f}"),
               ("serve: MB over idle, at the highest", highest, MOST_SERVE_BYTES, f"{highest / 1e6:.1f}"),
               ("watch: share of a core", share, MOST_WATCH_SHARE, f"{share:.4f}")]
    for name, value, limit, text in numbers:
        print(f"{name}: {text}{'' if value <= limit else '  BEYOND ITS LIMIT'}", flush=True)
    sys.exit(0 if all(value <= limit for _, value, limit, _ in numbers) else 1)


if __name__ == "__main__":
    main()
