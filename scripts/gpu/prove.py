"""The parts of prove.sh."""

import argparse
import concurrent.futures
import dataclasses
import hashlib
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts" / "bench"))

from measure import BENCH, RECIPE, Work, recipe_options, run_command  # noqa: E402

SECONDS_OF_A_RUN = 530
CHAT_RECIPE = ROOT / "recipes" / "llm_finetune" / "chat_quickstart.yaml"
# Dense bfloat16 operations a second, by a part of the name that the driver gives.
PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "B200": 2250e12}
LLAMA_8B = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 14336,
            "vocab_size": 128256, "max_position_embeddings": 131072, "rope_theta": 500000.0, "rms_norm_eps": 1e-5,
            "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 128000, "eos_token_id": 128001}
LLAMA_7B = {**LLAMA_8B, "num_key_value_heads": 32, "intermediate_size": 11008, "vocab_size": 32000,
            "max_position_embeddings": 4096, "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 2}
QWEN_SMALL = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024,
              "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
              "intermediate_size": 3072, "vocab_size": 151936, "max_position_embeddings": 40960,
              "rope_theta": 1000000.0, "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": True,
              "attention_bias": False, "bos_token_id": 151643, "eos_token_id": 151645}
QWEN_EXPERTS = {**QWEN_SMALL, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_hidden_layers": 16,
                "vocab_size": 32000, "num_experts": 32, "num_experts_per_tok": 4, "moe_intermediate_size": 768,
                "decoder_sparse_step": 1, "norm_topk_prob": True, "mlp_only_layers": [], "tie_word_embeddings": False}
# What a rehearsal without a GPU trains in place of these.
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
         "intermediate_size": 128, "vocab_size": 512}
CURVE_SHAPES = ["qwen3_shape", "qwen3_moe_shape", "qwen3_5_shape", "nemotron_h_shape"]


class RunFailed(Exception):
    """A run of the program ended with an error, which is the text."""


class Prover:
    def __init__(self, arguments):
        self.program = str(arguments.program.resolve())
        self.is_rehearsal = arguments.rehearse
        self.rounds = arguments.rounds
        self.has_peer = not arguments.no_peers
        self.kept_records = arguments.records
        self.folder = tempfile.TemporaryDirectory()
        self.table = []
        # Small runs are beside each other on a device, which they leave idle most of the time.
        self.pool = concurrent.futures.ThreadPoolExecutor(1 if self.is_rehearsal else 8)

    def say(self, *cells):
        self.table.append([str(cell) for cell in cells])
        print(" | ".join(self.table[-1]), flush=True)

    def device_options(self):
        return ["--device", "cpu" if self.is_rehearsal else "cuda"]  # cuda: an error where there is none

    def shape(self, name, config):
        path = pathlib.Path(self.folder.name) / name
        path.mkdir(exist_ok=True)
        (path / "config.json").write_text(json.dumps({**config, **(SMALL if self.is_rehearsal else {})}))
        return path

    def train(self, work, options=(), seconds=SECONDS_OF_A_RUN, kernels="own", checkpoints=None):
        """The records of a run's steps; throws RunFailed. `work`: a Work or a recipe's file; `kernels`: the device's, own
        or plain; `checkpoints`: a folder that stays, or none."""
        with tempfile.TemporaryDirectory() as own_folder:
            folder = checkpoints or own_folder
            recipe = [str(RECIPE), *recipe_options(work)] if isinstance(work, Work) else [str(work)]
            command = [self.program, "run", *recipe, *options, f"--checkpoint.checkpoint_dir={folder}"]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False,
                                  env={**os.environ, "AUTOMODEL_DEVICE_KERNELS": kernels})
            if done.returncode != 0:
                raise RunFailed(f"{' '.join(command)}\nfailed with status {done.returncode}\n{done.stdout[-1000:]}"
                                f"{done.stderr[-2000:]}")
            return [json.loads(line) for line in (pathlib.Path(folder) / "training.jsonl").read_text().splitlines()]

    def train_on_cpu(self, work, options=()):
        """As train(), on the CPU; of an earlier proof's records where it kept them."""
        if self.kept_records is None:
            return self.train(work, [*options, "--device", "cpu"])
        told = dataclasses.asdict(work) if isinstance(work, Work) else work
        recipe = RECIPE if isinstance(work, Work) else work
        shape = (work.shape / "config.json").read_text() if isinstance(work, Work) else ""
        whole = repr((told, list(options), recipe.read_text(), shape)).replace(str(ROOT), "")
        name = hashlib.sha1(whole.encode()).hexdigest()
        path = self.kept_records / f"{name}.json"
        if not path.exists():
            records = self.train(work, [*options, "--device", "cpu"])
            self.kept_records.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(records))
        return json.loads(path.read_text())

    def records_of(self, run):
        """Of a run that the pool has; None, after its text, where it failed."""
        try:
            return run.result()
        except (RunFailed, subprocess.TimeoutExpired) as error:
            print(error, flush=True)
            return None

    # The parts

    def machine(self):
        for command in (["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"],
                        [self.program, "version"], [self.program, "doctor"]):
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
                print(done.stdout + done.stderr, flush=True)
            except FileNotFoundError as error:
                print(error, flush=True)

    def goldens(self):
        """Logits, losses and gradients of every family beside transformers', by the tests of the CUDA build."""
        program = pathlib.Path(self.program).parent / "test_models"
        shards = 2 if self.is_rehearsal else 8
        names = "*PlainPathTest.Float32*llama*" if self.is_rehearsal else "*DeviceTest*"
        environment = {**os.environ, "AUTOMODEL_SOURCE_DIR": str(ROOT), "GTEST_TOTAL_SHARDS": str(shards),
                       "AUTOMODEL_TEST_DEVICE": "cpu" if self.is_rehearsal else "cuda"}
        command = [str(program), f"--gtest_filter={names}"]

        def run(shard):
            return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_OF_A_RUN, check=False,
                                  env={**environment, "GTEST_SHARD_INDEX": str(shard)})

        prefixes = {"right": "[       OK ]", "skipped": "[  SKIPPED ]", "wrong": "[  FAILED  ]"}
        counts = dict.fromkeys(prefixes, 0)
        is_right = True
        for done in self.pool.map(run, range(shards)):
            is_right = is_right and done.returncode == 0
            for line in done.stdout.splitlines():
                for verdict, prefix in prefixes.items():
                    counts[verdict] += line.startswith(prefix) and line.endswith("ms)")
            if done.returncode != 0:
                told = [line for line in done.stdout.splitlines() if not line.startswith(("[ RUN", "[       OK"))]
                print("\n".join(told[-60:])[-6000:], done.stderr[-500:], flush=True)
        self.say("families beside transformers", *(f"{count} {verdict}" for verdict, count in counts.items()))
        return is_right and counts["right"] > 0

    def curves(self):
        self.say("losses of 20 steps", "dtype", "device from CPU's float32", "CPU's bfloat16 from it", "verdict")
        return self.are_near_the_cpu({name: {dtype: (Work(BENCH / name, batch=4, length=128, steps=20, dtype=dtype), [])
                                             for dtype in ("float32", "bfloat16")} for name in CURVE_SHAPES})

    def documents(self):
        """Conversations packed into rows, and in rows that are padded."""
        self.say("conversations", "dtype", "device from CPU's float32", "CPU's bfloat16 from it", "verdict")
        short = ["--step_scheduler.max_steps=20", "--checkpoint.enabled=false", "--validation_dataset=none",
                 "--validation_dataloader=none"]
        kinds = {"packed": ["--packed_sequence.packed_sequence_size=512"], "padded": []}
        return self.are_near_the_cpu({name: {dtype: (CHAT_RECIPE, [*short, *options, f"--model.torch_dtype={dtype}"])
                                             for dtype in ("float32", "bfloat16")} for name, options in kinds.items()})

    def settings(self):
        """The same of strategies, optimizers and other ways to train one model."""
        self.say("settings, losses of 10 steps", "dtype", "device from CPU's float32", "CPU's bfloat16 from it", "verdict")
        fsdp = "--distributed.strategy=fsdp2"
        kinds = {
            "fsdp2": [fsdp],
            "offloaded": [fsdp, "--distributed.offload_policy._target_=torch.distributed.fsdp.CPUOffloadPolicy"],
            "recomputed": [fsdp, "--distributed.activation_checkpointing=full"],
            "megatron_fsdp": ["--distributed.strategy=megatron_fsdp"],
            "micro-batches": ["--step_scheduler.local_batch_size=2", "--dataset.batch_size=2"],
            "LoRA": ["--peft.dim=8", "--peft.alpha=32"],
            "LoRA of rank 24": ["--peft.dim=24", "--peft.alpha=32"],
            "LoRA with dropout": ["--peft.dim=8", "--peft.alpha=32", "--peft.dropout=0.1"],
            "QLoRA": ["--peft.dim=8", "--peft.alpha=32", "--quantization.load_in_4bit=true",
                      "--quantization.bnb_4bit_compute_dtype={dtype}"],
            "Muon": ["--optimizer._target_=dion.Muon"],
            "AdamW8bit": ["--optimizer._target_=bitsandbytes.optim.AdamW8bit"],
            "SGD": ["--optimizer._target_=torch.optim.SGD", "--optimizer.betas=none", "--optimizer.lr=0.05"],
        }
        work = {dtype: Work(BENCH / "qwen3_shape", batch=4, length=128, steps=10, dtype=dtype)
                for dtype in ("float32", "bfloat16")}
        return self.are_near_the_cpu({name: {dtype: (work[dtype], [option.format(dtype=dtype) for option in options])
                                             for dtype in work} for name, options in kinds.items()})

    def saves(self):
        """A run that is saved, by a thread of its own and by none, and goes on: its losses are those of one that was not."""
        self.say("4 steps, a checkpoint, 4 steps", "dtype", "from 8 steps without", "verdict")
        is_right = True
        for name, options in {"at once": [], "asynchronous": ["--checkpoint.is_async=true"]}.items():
            for dtype in ("float32", "bfloat16"):
                work, half = (Work(BENCH / "qwen3_shape", batch=4, length=128, steps=steps, dtype=dtype) for steps in (8, 4))
                saving = [*options, *self.device_options(), "--checkpoint.enabled=true"]
                with tempfile.TemporaryDirectory() as folder:
                    self.train(half, saving, checkpoints=folder)
                    resumed = self.train(work, [*saving, "--checkpoint.restore_from=LATEST"], checkpoints=folder)
                apart = distance(resumed, self.train(work, self.device_options()))
                fits = apart <= (1e-6 if dtype == "float32" else 1e-4)
                is_right = is_right and fits
                self.say(name, dtype, f"{apart:.1e}", "right" if fits else "WRONG")
        return is_right

    def are_near_the_cpu(self, kinds):
        """The work and options of each kind's dtypes: float32 as near to the CPU as sums in another order are; bfloat16 at
        most twice as far from it as the CPU's bfloat16 is."""
        runs = {(name, dtype): (self.pool.submit(self.train_on_cpu, work, options),
                                self.pool.submit(self.train, work, [*options, *self.device_options()]))
                for name, of_kind in kinds.items() for dtype, (work, options) in of_kind.items()}
        records = {of: tuple(map(self.records_of, pair)) for of, pair in runs.items()}
        is_right = True
        for (name, dtype), (_, found) in records.items():
            exact = records[name, "float32"][0]
            peer = distance(records[name, "bfloat16"][0], exact)
            apart = distance(found, exact)
            fits = is_near(apart, dtype, peer)
            is_right = is_right and fits
            self.say(name, dtype, f"{apart:.1e}", f"{peer:.1e}", "right" if fits else "WRONG")
        return is_right

    def kernels(self):
        """The device's own kernels beside PyTorch's operations."""
        return self.two_ways({"own kernels": lambda work: self.train(work, self.device_options()),
                              "plain": lambda work: self.train(work, self.device_options(), kernels="plain")},
                             ("qwen3_shape", "qwen3_moe_shape"), {"Qwen 3 0.6B, 2 x 2048, bfloat16": 0})

    def recorded(self):
        """Steps that are recorded as one CUDA graph beside the same ones launched kernel by kernel."""
        graph = [*self.device_options(), "--model.backend.cuda_graph=true"]
        return self.two_ways({"recorded": lambda work: self.train(work, graph),
                              "launched": lambda work: self.train(work, self.device_options())}, ("qwen3_shape",),
                             {"Qwen 3 0.6B, 2 x 2048, bfloat16": 0, "the same, LoRA r 8": 8})

    def two_ways(self, ways, shapes, timed):
        """Losses of both ways: in float32 near to the CPU, in bfloat16 at most twice as far from it as the CPU's bfloat16
        is; tokens a second of both. `timed`: names and adapters' ranks."""
        (first, one), (second, other) = ways.items()
        self.say("losses of 20 steps", "dtype", f"{first} from CPU's float32", f"{second} from it",
                 "CPU's bfloat16 from it", "verdict")
        is_right = True
        runs = {(name, dtype): [self.pool.submit(train, Work(BENCH / name, batch=4, length=128, steps=20, dtype=dtype))
                                for train in (one, other)] for name in shapes for dtype in ("float32", "bfloat16")}
        for (name, dtype), ways in runs.items():
            exact, rounded = (self.train_on_cpu(Work(BENCH / name, batch=4, length=128, steps=20, dtype=kind))
                              for kind in ("float32", "bfloat16"))
            peer = distance(rounded, exact)
            near, far = (distance(self.records_of(run), exact) for run in ways)
            fits = is_near(max(near, far), dtype, peer)
            is_right = is_right and fits
            self.say(name, dtype, f"{near:.1e}", f"{far:.1e}", f"{peer:.1e}", "right" if fits else "WRONG")
        for name, rank in timed.items():
            self.say(name, f"{first}, tokens/s", second, "ratio")
            work = Work(self.shape("two_ways", QWEN_SMALL), 2, self.length(2048), "bfloat16", rank, steps=10)
            for _ in range(self.rounds):
                near, far = (statistics.median(record["tps"] for record in train(work)[4:]) for train in (one, other))
                self.say("", f"{near:.0f}", f"{far:.0f}", f"{near / far:.2f}")
        return is_right

    def context(self):
        """Memory grows with the length, not with its square, and is what the plan says."""
        self.say("tokens of a sequence", "peak GiB", "planned", "tokens/s")
        peaks, is_planned = {}, True
        for length in (256, 512) if self.is_rehearsal else (2048, 8192, 16384, 32768):
            work = Work(self.shape("context", {**QWEN_SMALL, "num_hidden_layers": 4}), 1, length, "bfloat16", steps=5)
            records = self.train(work, self.device_options())
            peaks[length] = max(record["mem"] for record in records)
            planned = self.planned_gib(work)
            is_planned = is_planned and (self.is_rehearsal or abs(peaks[length] / planned - 1) < 0.1)
            self.say(length, f"{peaks[length]:.2f}", f"{planned:.2f}", f"{records[-1]['tps']:.0f}")
        shortest, longest = min(peaks), max(peaks)
        return is_planned and peaks[longest] < 1.3 * peaks[shortest] * longest / shortest

    def planned_gib(self, work, options=()):
        command = [self.program, "plan", str(RECIPE), *recipe_options(work), *options, *self.device_options(), "--json"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
        return json.loads(done.stdout)["bytes"]["total"] / 2**30

    def faults(self):
        """Exit status 4 and a text that says what would help."""
        length, batch = (64, 4) if self.is_rehearsal else (32768, 64)
        work = Work(self.shape("faults", QWEN_SMALL), batch, length, "float32", steps=1)
        done = subprocess.run([self.program, "run", str(RECIPE), *recipe_options(work), *self.device_options(),
                               f"--checkpoint.checkpoint_dir={self.folder.name}/faults_run"],
                              cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_OF_A_RUN, check=False)
        text = (done.stdout + done.stderr).strip().rpartition("\n")[2]
        self.say("too large a batch", f"status {done.returncode}", text[:200])
        return self.is_rehearsal or (done.returncode == 4 and "out of memory" in text)

    def beside_peer(self, name, work, peak=None, options=(), has_peer=True):
        """Tokens a second of both sides, right after each other, in every round."""
        self.say(name, "tokens/s", "peer", "ratio", "peak GiB", "planned", "MFU")
        planned = self.planned_gib(work, options)
        for _ in range(self.rounds):
            records = self.train(work, [*self.device_options(), *options])
            ours = sorted(record["tps"] for record in records[3:])[(len(records) - 3) // 2]
            theirs = self.peer_rate(work) if self.has_peer and has_peer else None
            mfu = f"{ours * flops_of_a_token(work) / peak:.1%}" if peak else "-"
            self.say("", f"{ours:.0f}", f"{theirs:.0f}" if theirs else "none", f"{ours / theirs:.2f}" if theirs else "-",
                     f"{max(record['mem'] for record in records):.1f}", f"{planned:.1f}", mfu)
        return True

    def peer_rate(self, work):
        """Tokens a second of transformers, or None after the text of its error."""
        command = ["python3", str(BENCH / "peer_transformers.py"), "--config", str(work.shape), "--steps", str(work.steps),
                   "--batch", str(work.batch), "--length", str(work.length), "--lora-rank", str(work.lora_rank), "--dtype",
                   work.dtype, "--device", "cpu" if self.is_rehearsal else "cuda"]
        try:
            output, _ = run_command(command, {"HF_HUB_OFFLINE": "1"})
            return json.loads(output.strip().splitlines()[-1])["tokens_per_second"]
        except SystemExit as error:
            print(str(error)[-600:], flush=True)
            return None

    def lora_small(self):
        return self.beside_peer("Qwen 3 0.6B, LoRA r 8, 2 x 2048, bfloat16, steps recorded",
                                Work(self.shape("qwen", QWEN_SMALL), 2, self.length(2048), "bfloat16", 8), gpu_peak(),
                                ["--model.backend.cuda_graph=true"])

    def full_small(self):
        return self.beside_peer("Qwen 3 0.6B, 2 x 2048, bfloat16",
                                Work(self.shape("qwen", QWEN_SMALL), 2, self.length(2048), "bfloat16"), gpu_peak())

    def experts(self):
        return self.beside_peer("Qwen 3 MoE, 1.4B of 32 experts, 4 x 2048, bfloat16",
                                Work(self.shape("experts", QWEN_EXPERTS), 4, self.length(2048), "bfloat16", steps=10))

    def lora_8b(self):
        return self.beside_peer("Llama 3.1 8B, LoRA r 8, 1 x 4096, bfloat16, steps recorded",
                                Work(self.shape("8b", LLAMA_8B), 1, self.length(4096), "bfloat16", 8, 10), gpu_peak(),
                                ["--model.backend.cuda_graph=true"])

    def full_7b(self):
        shape, recorded = self.shape("7b", LLAMA_7B), ["--model.backend.cuda_graph=true"]
        self.beside_peer("7B, 8 x 1024, bfloat16, steps recorded",
                         Work(shape, 8, self.length(1024), "bfloat16", steps=10), gpu_peak(), recorded)
        if gpu_gib() < 120:
            return True
        return self.beside_peer("7B, 16 x 1024, which the peer has no memory for",
                                Work(shape, 16, self.length(1024), "bfloat16", steps=8), gpu_peak(), recorded, has_peer=False)

    def length(self, tokens):
        return 64 if self.is_rehearsal else tokens


def is_near(apart, dtype, peer):
    """Losses of float32 so near as sums in another order are, those of bfloat16 at most twice as far as a peer's."""
    return math.isfinite(apart) and math.isfinite(peer) and apart <= (1e-4 if dtype == "float32" else 2 * peer)


def distance(records, exact):
    """The largest relative difference of a loss; infinite where a run failed or has other steps."""
    if records is None or exact is None or len(records) != len(exact):
        return math.inf
    apart = [abs(a["loss"] / b["loss"] - 1) for a, b in zip(records, exact, strict=True)]
    return max(apart) if all(map(math.isfinite, apart)) else math.inf


def flops_of_a_token(work):
    """Forward and backward of all weights that multiply, and of attention to half of the sequence; where only
    adapters are trained, no gradients of weights."""
    config = json.loads((work.shape / "config.json").read_text())
    hidden, layers, dim = config["hidden_size"], config["num_hidden_layers"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    layer = hidden * dim * (2 * heads + 2 * kv_heads) + 3 * hidden * config["intermediate_size"]
    weights = layers * layer + hidden * config["vocab_size"]
    attention = layers * heads * dim * work.length  # scores and values, of half the keys each
    return (4 if work.lora_rank else 6) * weights + 6 * attention


def gpu_peak():
    try:
        name = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True,
                              check=False).stdout
    except FileNotFoundError:
        return None
    return next((peak for part, peak in PEAKS.items() if part in name), None)


def gpu_gib():
    try:
        told = subprocess.run(["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, check=False).stdout
        return int(told.splitlines()[0]) / 1024
    except (FileNotFoundError, IndexError, ValueError):
        return 0


PARTS = ["machine", "goldens", "curves", "documents", "settings", "saves", "kernels", "recorded", "context", "faults",
         "lora_small", "full_small", "experts", "lora_8b", "full_7b"]


def main():
    parser = argparse.ArgumentParser(description="Proves on a GPU what prove.sh lists.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build" / "cuda" / "automodel")
    parser.add_argument("--out", type=pathlib.Path, help="a folder for a JSON file a part")
    parser.add_argument("--records", type=pathlib.Path, help="a folder that keeps the CPU's runs for the next proof")
    parser.add_argument("--rounds", type=int, default=2, help="how often both sides are timed (default 2)")
    parser.add_argument("--no-peers", action="store_true", help="time the program alone")
    parser.add_argument("--rehearse", action="store_true", help="tiny models on the CPU: only to see that the parts run")
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part is named {', '.join(sorted(unknown))}")
    failed = []
    for part in arguments.parts or PARTS:
        prover = Prover(arguments)
        begin = time.monotonic()
        print(f"== {part}", flush=True)
        try:
            is_right = getattr(prover, part)() is not False
        except (RunFailed, subprocess.TimeoutExpired) as error:
            print(error, flush=True)
            is_right = False
        seconds = time.monotonic() - begin
        print(f"== {part}: {'done' if is_right else 'WRONG'} in {seconds:.0f} s", flush=True)
        if not is_right:
            failed.append(part)
        if arguments.out:
            arguments.out.mkdir(parents=True, exist_ok=True)
            (arguments.out / f"{part}.json").write_text(
                json.dumps({"part": part, "is_right": is_right, "seconds": seconds, "table": prover.table}, indent=1))
    sys.exit(f"prove: wrong: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
