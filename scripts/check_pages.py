#!/usr/bin/env python3
"""Opens the pages of automodel report and automodel serve in a browser, takes pictures of them, and fails
for an error on the console or a page that is wider than a phone.

usage: check_pages.py PROGRAM PICTURES [--chromium CHROMIUM]

PROGRAM is automodel; PICTURES is the folder that gets the pictures: light, dark, on a phone (360 pixels wide)
and printed (also as PDF), of one run with all that a run may record, of fifty, of a long one, of the list
and of runs beside each other. Needs Chromium (Debian's package chromium).
"""

import argparse
import base64
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from check_overheads import event_line, loads, step_line, timestamp, write_run, START

PHONE = 360
MEDIA = {"light": ("screen", "light", 1280), "dark": ("screen", "dark", 1280), "phone": ("screen", "light", PHONE),
         "print": ("print", "dark", 800)}


class Browser:
    """Chromium without a window, spoken to through a pipe: DevTools' messages end in zero bytes."""

    def __init__(self, program):
        from_us, to_browser = os.pipe()
        from_browser, to_us = os.pipe()

        def place_pipes():  # the browser reads from 3 and writes to 4
            reading, writing = os.dup(from_us), os.dup(to_us)
            os.dup2(reading, 3)
            os.dup2(writing, 4)

        self.folder = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
             f"--user-data-dir={self.folder.name}", "about:blank"],
            preexec_fn=place_pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(from_us)
        os.close(to_us)
        self.out, self.input = os.fdopen(to_browser, "wb"), os.fdopen(from_browser, "rb")
        self.number, self.session, self.buffer, self.problems, self.loaded = 0, None, b"", [], False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.out.write(json.dumps(message).encode() + b"\0")
        self.out.flush()
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise SystemExit(f"{method}: {answer['error']}")
                return answer["result"]

    def read(self):
        while b"\0" not in self.buffer:
            piece = self.input.read1(1 << 20)
            if not piece:
                raise SystemExit("the browser ended")
            self.buffer += piece
        text, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(text)
        self.note(message.get("method"), message.get("params", {}))
        return message

    def note(self, event, what):
        if event == "Page.loadEventFired":
            self.loaded = True
        if event == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(what["exceptionDetails"])[:500])
        if event == "Runtime.consoleAPICalled" and what["type"] in ("error", "assert", "warning"):
            self.problems.append(json.dumps(what["args"])[:500])
        if event == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
            self.problems.append(json.dumps(what["entry"])[:500])

    def open(self, address, media):
        kind, scheme, width = MEDIA[media]
        self.call("Emulation.setEmulatedMedia", media=kind,
                  features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1,
                  mobile=media == "phone")
        self.loaded = False
        self.call("Page.navigate", url=address)
        while not self.loaded:
            self.read()

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise SystemExit(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def picture(self, path):
        most_height = 6000
        height = min(most_height, self.value("document.documentElement.scrollHeight"))
        width = self.value("window.innerWidth")
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True,
                         clip={"x": 0, "y": 0, "width": width, "height": height, "scale": 1})["data"]
        path.write_bytes(base64.b64decode(data))

    def pdf(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"]))

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


def training(num_steps, seed, tokens=20480):
    lines = []
    for step in range(num_steps):
        noise = math.sin(step * 12.9898 + seed * 78.233) * 43758.5453 % 1
        loss = 2 + 0.1 * seed + 6 / (1 + step / 40) + 0.4 * noise + (3 if step == 400 else 0)
        record = {"step": step, "epoch": 0, "timestamp": timestamp(START + step * 2), "loss": loss,
                  "grad_norm": 0.5 + noise, "lr": 0.001 * (1 - step / num_steps), "mem": 0.25 + (step > 3) * 0.04,
                  "tps": 9000 + 1500 * noise, "mfu": 31 + 4 * noise, "num_tokens_per_step": tokens,
                  "num_label_tokens": 12000, "data_seconds": 0.1 + (1.1 if 300 < step < 380 else 0),
                  "forward_backward_seconds": 1.2, "update_seconds": 0.2, "wait_seconds": 0.25,
                  "kd_loss": loss * 0.7, "ce_loss": loss * 0.3}
        lines.append(json.dumps(record))
    return "\n".join(lines) + "\n"


def write_rich_run(folder, num_steps=800):
    """A run that has recorded all that a run may."""
    folder.mkdir(parents=True)
    (folder / "training.jsonl").write_text(training(num_steps, 0))
    for name, offset in (("validation.jsonl", 0.2), ("validation_held_out.jsonl", 0.6)):
        (folder / name).write_text("".join(
            json.dumps({"step": step, "val_loss": 2 + offset + 6 / (1 + step / 40)}) + "\n"
            for step in range(0, num_steps, 50)))
    parts = [("parameters", 90), ("gradients", 45), ("optimizer state", 90), ("activations", 60)]
    plan = {"loading_bytes": 120e6, "step_bytes": 285e6, "saving_bytes": 240e6, "most_bytes": 333e6,
            "parts": [{"name": name, "bytes": int(size * 1e6)} for name, size in parts],
            "not_counted": ["libraries", "kernels' scratch"], "pipeline_bubble": 0.2}
    measured = [{"name": name, "bytes": int(size * 0.9e6)} for name, size in parts]
    skipped = {"grad_norm": 25.1, "usual_norm": 1.1, "loss": 5.6}
    events = [event_line("start", 0, num_ranks=4), event_line("load", 0, seconds=12.0),
              event_line("memory", 0, peak_bytes=310_000_000, parts=measured),
              event_line("skipped_update", 400, **skipped),
              event_line("advice", 401, kind="spike", text="step 400: loss 5.61 is far above the usual 2.6"),
              event_line("advice", 360, kind="slow_data", text="38% of the last 50 steps' time went into waiting for "
                                                               "batches: more workers or a faster disk would help"),
              event_line("failure", 500, rank=2, status=137, text="killed, perhaps for want of memory"),
              event_line("start", 480, num_ranks=4, changed=[{"key": "optimizer.lr", "from": 0.001, "to": 0.0005}]),
              event_line("resume", 480, seconds=8.0),
              event_line("rollback", 600, next_step=560, **skipped),
              event_line("preempted", 700, signal="SIGTERM"), event_line("start", 700), event_line("resume", 700)]
    events += [event_line("expert_load", step, layers=loads(step)) for step in range(0, num_steps, 50)]
    events += [event_line("data", 799, num_sequences=64000, num_tokens=16_384_000, num_label_tokens=9_600_000,
                          num_padding_tokens=410_000, num_documents=71234,
                          lengths=[[64 * k, int(9000 * math.exp(-((k - 5) / 3) ** 2))] for k in range(1, 17)])]
    (folder / "events.jsonl").write_text("".join(events))
    values = {"model.pretrained_model_name_or_path": "Qwen/Qwen3-0.6B", "optimizer.lr": 0.001,
              "recipe": "TrainFinetuneRecipeForNextTokenPrediction", "peft.dim": 8,
              "dataset.path_or_dataset_id": "/data/a/very/long/path/that/has/no/space/" + "x" * 80 + ".jsonl"}
    (folder / "run.json").write_text(json.dumps(
        {"format": 2, "version": "0.9.0", "max_steps": 1000, "num_ranks": 4, "plan": plan, "device": "cpu",
         "model": {"architecture": "Qwen3ForCausalLM", "num_parameters": 596_000_000},
         "data": {"prepared": {"num_samples": 64000, "num_packs": 15872, "num_dropped": 12, "fill": 0.974}},
         "values": {key: {"value": value, "origin": "recipe.yaml:3"} for key, value in values.items()}}))


def write_runs(root):
    """The folders of runs: {name of a page: folders}."""
    write_rich_run(root / "rich")
    many = []
    for number in range(50):
        folder = root / f"sweep/lr-{number:02d}"
        folder.mkdir(parents=True)
        (folder / "training.jsonl").write_text(training(300, number / 10))
        end = "failure" if number % 9 == 4 else "end"
        (folder / "events.jsonl").write_text(event_line("start", 0) + event_line(end, 299, text="no space is left"))
        (folder / "run.json").write_text(json.dumps(
            {"format": 1, "max_steps": 300, "values": {"optimizer.lr": {"value": number, "origin": "default"}}}))
        many.append(folder)
    write_run(root / "long", 200_000)
    return {"rich": [root / "rich"], "fifty": many, "long": [root / "long"]}


def check(browser, name, address, pictures):
    """Takes a page's pictures; returns what is wrong with it."""
    problems = []
    for media in MEDIA:
        browser.problems.clear()
        browser.open(address, media)
        width = browser.value("document.documentElement.scrollWidth")
        if media == "phone" and width > PHONE:
            wide = browser.value("[...document.querySelectorAll('body *')].filter(it => it.getBoundingClientRect().right "
                                 "> innerWidth + 1).slice(0, 5).map(it => it.tagName + '.' + it.className).join(', ')")
            problems.append(f"{name}: {width} pixels wide on a phone of {PHONE} ({wide})")
        browser.picture(pictures / f"{name}-{media}.png")
        if media == "print":
            browser.pdf(pictures / f"{name}.pdf")
        problems += [f"{name} ({media}): {problem}" for problem in browser.problems]
    return problems


def check_switches(browser, address):
    """Whether the switches show what they say, and closed details are printed."""
    problems = []
    shown = ("[...document.querySelectorAll('figure:first-of-type > div')].filter(it => it.offsetParent)"
             ".map(it => it.className).join()")
    browser.open(address, "light")
    for switches, wanted in ((["x-step"], "by-step linear"), (["x-tokens"], "by-tokens linear"),
                             (["x-time", "y-log"], "by-time log"), (["x-step", "y-log"], "by-step log")):
        for switch in switches:
            browser.value(f"document.getElementById('{switch}').click()")
        found = browser.value(shown)
        if found != wanted:
            problems.append(f"with {switches} the page shows {found}")
        browser.value("document.getElementById('y-linear').click()")
    browser.open(address, "print")
    height = browser.value("document.querySelector('details .wide').getBoundingClientRect().height")
    if not height:
        problems.append("what is closed is not printed")
    return problems


def check_choice(browser, home, root):
    """Whether chosen runs stay chosen while the list keeps itself up to date, and are shown beside each other."""
    browser.problems.clear()
    browser.open(home, "light")
    browser.value("for (const it of document.querySelectorAll('[value=rich],[value=long]')) it.click()")
    with open(root / "long/training.jsonl", "a") as file:
        file.write(step_line(200_000))
    deadline = time.monotonic() + 60
    while "200001 of" not in browser.value("document.querySelector('main').textContent"):
        if time.monotonic() > deadline:
            return ["the list does not keep itself up to date"]
        time.sleep(0.5)
    chosen = browser.value("[...document.querySelectorAll('input:checked')].map(it => it.value).sort().join()")
    problems = [] if chosen == "long,rich" else [f"of long and rich, {chosen} stays chosen"]
    browser.loaded = False
    browser.value("document.querySelector('form button').click()")
    while not browser.loaded:
        browser.read()
    title = browser.value("document.querySelector('h1').textContent")
    if title not in ("long, rich", "rich, long"):
        problems.append(f"the chosen runs lead to {title}")
    return problems + browser.problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("pictures", type=pathlib.Path)
    parser.add_argument("--chromium", default="chromium")
    options = parser.parse_args()
    options.pictures.mkdir(parents=True, exist_ok=True)
    program = options.program.resolve()
    problems = []
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary) / "runs"
        pages = write_runs(root)
        browser = Browser(options.chromium)
        server = subprocess.Popen([program, "serve", root, "--port", "0"], stdout=subprocess.PIPE, text=True)
        try:
            for name, folders in pages.items():
                page = options.pictures / f"{name}.html"
                with open(page, "w") as file:
                    subprocess.run([program, "report", *folders], check=True, stdout=file)
                problems += check(browser, f"report-{name}", f"file://{page.resolve()}", options.pictures)
            problems += check_switches(browser, f"file://{(options.pictures / 'rich.html').resolve()}")
            home = re.search(r"http://\S+", server.stdout.readline())[0]
            for name, path in {"list": "", "run": "runs/rich",
                               "compare": "compare?run=rich&run=sweep/lr-04&run=sweep/lr-11"}.items():
                problems += check(browser, f"serve-{name}", home + path, options.pictures)
            problems += check_choice(browser, home, root)
        finally:
            server.terminate()
            server.wait()
            browser.close()
    print("\n".join(problems) or f"every page is as it should be; pictures are in {options.pictures}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
