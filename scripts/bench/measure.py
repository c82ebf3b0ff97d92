"""Runs one training of automodel or of its peer and measures it: what run.py and scale.py have in common."""

import dataclasses
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BENCH = ROOT / "scripts" / "bench"
RECIPE = BENCH / "qwen3_shape.yaml"
SKIPPED = 3  # steps before the clock starts


@dataclasses.dataclass(frozen=True)
class Work:
    """What both sides train: a folder with a config.json, and tokens of it."""

    shape: pathlib.Path
    batch: int = 8
    length: int = 256
    dtype: str = "float32"
    lora_rank: int = 0
    steps: int = 14


@dataclasses.dataclass
class Measured:
    """Tokens a second (median of the steps after the first), peak resident MB of the largest process, and
    seconds from the start of the command to the end of the first step."""

    tokens_per_second: float
    peak_mb: float
    first_step_seconds: float


def run_command(command, environment=()):
    """Runs a command from the project's folder; returns its standard output and its peak resident MB."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=errors,
                                   env={**os.environ, **dict(environment)})
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        if status != 0:
            errors.seek(0)
            raise SystemExit(f"{command} failed with status {status}\n{output[-3000:]}{errors.read()[-3000:]}")
    return output, usage.ru_maxrss / 1024


def recipe_options(work):
    vocab_size = json.loads((work.shape / "config.json").read_text())["vocab_size"]
    options = [f"--model.config.pretrained_model_name_or_path={work.shape}", f"--model.torch_dtype={work.dtype}",
               f"--dataset.seq_len={work.length}", f"--dataset.vocab_size={vocab_size}",
               f"--dataset.batch_size={work.batch}", f"--step_scheduler.global_batch_size={work.batch}",
               f"--step_scheduler.local_batch_size={work.batch}", f"--step_scheduler.max_steps={work.steps}"]
    if work.lora_rank:
        options += [f"--peft.dim={work.lora_rank}", f"--peft.alpha={4 * work.lora_rank}"]
    return options


def run_ours(binary, work, extra=()):
    with tempfile.TemporaryDirectory() as folder:
        begin = time.time()
        _, peak_mb = run_command([binary, "run", str(RECIPE), *recipe_options(work),
                                  f"--checkpoint.checkpoint_dir={folder}", *extra])
        lines = (pathlib.Path(folder) / "training.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    first = datetime.datetime.fromisoformat(records[0]["timestamp"]).timestamp() - begin
    rates = [record["tps"] for record in records[SKIPPED:] or records]
    return Measured(statistics.median(rates), peak_mb, first)


def run_peer(python, work):
    command = [python, str(BENCH / "peer_transformers.py"), "--config", str(work.shape), "--steps", str(work.steps),
               "--batch", str(work.batch), "--length", str(work.length), "--lora-rank", str(work.lora_rank),
               "--dtype", work.dtype]
    output, peak_mb = run_command(command, {"HF_HUB_OFFLINE": "1"})
    result = json.loads(output.strip().splitlines()[-1])
    return Measured(result["tokens_per_second"], peak_mb, result["first_step_seconds"])


def default_peer_python():
    """The python of scripts/setup_peers.sh, which makes its environment when there is none."""
    return subprocess.check_output([str(ROOT / "scripts" / "setup_peers.sh")], text=True).strip()


def machine():
    """One line about the machine that the numbers come from."""
    cpu = [line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
           if line.startswith(("model name", "flags"))]
    flags = set(cpu[1].split()) if len(cpu) > 1 else set()
    kinds = [kind for kind in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if kind in flags]
    return f"{os.cpu_count()} cores of {cpu[0] if cpu else 'an unknown CPU'} ({' '.join(kinds)})"
