#!/usr/bin/env python3
"""Runs upstream's recipes whole on tiny twins of their models and data, offline.

usage: run_twins.py [--binary PATH] [--keep DIR] RECIPES...     (by a python with pyarrow and pyyaml)

RECIPES are files, or folders that are searched for *.yaml. A folder in the layout of Hugging Face's cache gets a
twin of every model that is known here (a golden's configuration with a larger vocabulary, weights drawn and exported
by the program itself, the quickstart's tokenizer) and of the data sets, as Parquet. Each recipe then runs for three
steps with HF_HUB_OFFLINE=1, its own parallelism at two where it is above one, with short sequences and small batches.
Prints a line a recipe; status 1 when one that has its twins does not run to its end.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pyarrow
import pyarrow.parquet
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
VOCABULARY = 2048
POSITIONS = 512
# Models of recipes, and the golden whose configuration their twins have.
MODELS = {
    "ByteDance-Seed/Seed-Coder-8B-Instruct": "llama_default",
    "ByteDance-Seed/Seed-OSS-36B-Instruct": "seed_oss",
    "GSAI-ML/LLaDA-8B-Base": "llada",
    "GSAI-ML/LLaDA-8B-Instruct": "llada",
    "MiniMaxAI/MiniMax-M2.5": "minimax_m2",
    "Qwen/QwQ-32B": "qwen2_window",
    "Qwen/Qwen2.5-7B": "qwen2_window",
    "Qwen/Qwen3-0.6B": "qwen3_tied",
    "Qwen/Qwen3-30B-A3B": "qwen3_moe",
    "Qwen/Qwen3.5-35B-A3B": "qwen3_5_moe_tower",
    "XiaomiMiMo/MiMo-V2-Flash": "mimo_v2_flash",
    "allenai/OLMo-2-0425-1B-Instruct": "olmo2",
    "baichuan-inc/Baichuan2-7B-Chat": "baichuan",
    "bigcode/starcoder2-7b": "starcoder2",
    "deepseek-ai/DeepSeek-V3": "deepseek_v3",
    "deepseek-ai/DeepSeek-V4-Flash": "deepseek_v4",
    "google/diffusiongemma-26B-A4B-it": "diffusion_gemma",
    "google/functiongemma-270m-it": "gemma3_text",
    "google/gemma-3-270m": "gemma3_text",
    "google/gemma-4-12B": "gemma4_unified_embedders",
    "inclusionAI/LLaDA2.1-mini": "llada2_moe",
    "inclusionAI/Ling-flash-2.0": "bailing_moe_v2",
    "inclusionAI/Ling-mini-2.0": "bailing_moe_v2",
    "meta-llama/Llama-3.1-70B": "llama_default",
    "meta-llama/Llama-3.1-8B": "llama_default",
    "meta-llama/Llama-3.2-1B": "llama_llama3_tied",
    "meta-llama/Llama-3.2-1B-Instruct": "llama_llama3_tied",
    "meta-llama/Llama-3.2-3B": "llama_llama3_tied",
    "meta-llama/Llama-3.3-70B-Instruct": "llama_default",
    "meta-models/Muse-Glimmer-30B": "muse_glimmer",
    "mistralai/Devstral-Small-2-24B-Instruct-2512": "ministral3_tower",
    "mistralai/Mistral-Nemo-Base-2407": "mistral_full",
    "mistralai/Mistral-Small-4-119B-2603": "mistral4_tower",
    "moonshotai/Kimi-K2-Base": "deepseek_v3",
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": "kimi_linear",
    "moonshotai/Moonlight-16B-A3B": "deepseek_v3_plain_queries",
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1_5": "llama_default",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "nemotron_h_moe",
    "nvidia/NVIDIA-Nemotron-3-Nano-4B-BF16": "nemotron_h",
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": "nemotron_h_latent",
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2": "nemotron_h",
    "openai/gpt-oss-120b": "gpt_oss",
    "openai/gpt-oss-20b": "gpt_oss",
    "openbmb/MiniCPM5-1B": "llama_default",
    "poolside/Laguna-S-2.1": "laguna",
    "stepfun-ai/Step-3.5-Flash": "step3p5",
    "tiiuae/Falcon-H1-34B-Instruct": "falcon_h1",
    "zai-org/GLM-4.5-Air": "glm4_moe",
    "zai-org/GLM-4.7": "glm4_moe",
    "zai-org/GLM-4.7-Flash": "glm4_moe_lite",
    "zai-org/GLM-5": "glm_moe_dsa",
    "zai-org/GLM-5.2": "glm_moe_dsa_shared",
    "zai-org/glm-4-9b-chat-hf": "glm",
}
# Recipes that make the twins of models which are not trained by next tokens.
MAKERS = {"diffusion_gemma": "tiny_diffusion_gemma", "llada": "tiny_llada", "llada2_moe": "tiny_llada"}
SIZES = ("tp_size", "pp_size", "cp_size", "ep_size")


def squad(count):
    context = "The river Elbe rises in the Giant Mountains and flows into the North Sea."
    return [
        dict(id=str(i), title="Elbe", context=context, question=f"Where does it rise ({i})?",
             answers=dict(text=["the Giant Mountains"], answer_start=[24]))
        for i in range(count)
    ]


def hellaswag(count):
    return [
        dict(ind=i, activity_label="Cooking", ctx_a="A man", ctx_b="cuts", ctx=f"A man cuts {i} onions. He",
             endings=["fries them.", "flies away.", "sings.", "sleeps."], source_id="a", split="train",
             split_type="indomain", label=str(i % 4))
        for i in range(count)
    ]


def conversations(count):
    return [
        dict(id=str(i), source="a", messages=[dict(role="user", content=f"What is {i} + {i}?"),
                                              dict(role="assistant", content=f"It is {2 * i}.")])
        for i in range(count)
    ]


def function_calls(count):
    tools = [dict(name="add", description="Adds.", parameters=dict(a=dict(type="int", description="a number")))]
    answers = [dict(name="add", arguments=dict(a=3))]
    return [
        dict(id=i, query=f"Add 3 to {i}.", answers=json.dumps(answers), tools=json.dumps(tools)) for i in range(count)
    ]


# Templates below `examples` of upstream's tree.
TEMPLATES = (
    "dllm_sft/diffusion_gemma_chat_template.jinja", "dllm_sft/llada_chat_template.jinja",
    "llm_finetune/olmo/chat_template.jinja",
)
# Files that recipes expect in the folder they run in.
FILES = {"gsm8k_chat_train.jsonl": conversations}
DATA = {
    "rajpurkar/squad": squad,
    "rowan/hellaswag": hellaswag,
    "allenai/tulu-3-sft-mixture": conversations,
    "Salesforce/xlam-function-calling-60k": function_calls,
}


def snapshot(home, kind, name):
    """The folder of a repository's one revision in a cache."""
    repository = home / "hub" / f"{kind}s--{name.replace('/', '--')}"
    revision = "0" * 40
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(revision)
    folder = repository / "snapshots" / revision
    folder.mkdir(parents=True)
    return folder


def make_data(home):
    for name, rows in DATA.items():
        folder = snapshot(home, "dataset", name) / "data"
        folder.mkdir()
        train = 100100 if name == "allenai/tulu-3-sft-mixture" else 512  # of which a recipe takes the last
        for split, count in (("train", train), ("validation", 16), ("test", 16)):
            table = pyarrow.Table.from_pylist(rows(count))
            pyarrow.parquet.write_table(table, folder / f"{split}-00000-of-00001.parquet")


def enlarge(config):
    """A golden's configuration with a vocabulary and positions for the quickstart's tokenizer, twice its layers for
    stages, and experts in pairs."""
    for part in (config, config.get("text_config")):
        if not isinstance(part, dict):
            continue
        layers = part.get("num_hidden_layers")
        for key, value in part.items():
            is_of_layers = any(word in key for word in ("layer", "types", "pattern", "ratios"))
            if is_of_layers and isinstance(value, list) and len(value) == layers:
                part[key] = value * 2
            # Step's lists have layers behind the model's, too, and stay as they are.
            if key == "num_hidden_layers" and part.get("model_type") != "step3p5":
                part[key] = value * 2
            if key in ("num_experts", "num_local_experts", "n_routed_experts") and value and value % 2:
                part[key] = value + 1
        by_layer = part.get("per_layer_config")
        if isinstance(by_layer, dict):
            by_layer.update({str(int(key) + layers): value for key, value in list(by_layer.items())})
        for key in ("vocab_size", "embedding_size"):
            if key in part:
                part[key] = VOCABULARY
        for key in ("max_position_embeddings", "n_positions"):
            if key in part:
                part[key] = max(part[key], POSITIONS)
    return config


def make_model(binary, golden, into, work):
    """Fills `into` with a twin; whether it could be made, and why not."""
    source = ROOT / "tests" / "golden" / golden / "config.json"
    if not source.exists():
        return f"no golden {golden}"
    begin = work / golden
    begin.mkdir()
    (begin / "config.json").write_text(json.dumps(enlarge(json.loads(source.read_text()))))
    checkpoints = work / f"{golden}-made"
    command = [
        binary, "run", ROOT / f"recipes/smoke/{MAKERS.get(golden, 'tiny_llama_sft')}.yaml",
        "--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_config", f"--model.config={begin}",
        "--model.pretrained_model_name_or_path=none", "--step_scheduler.max_steps=1",
        f"--checkpoint.checkpoint_dir={checkpoints}", "--checkpoint.save_consolidated=every",
    ]
    if MAKERS.get(golden) == "tiny_llada":
        command.append(f"--dllm.mask_token_id={VOCABULARY - 1}")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        return next((line for line in lines if "rror" in line), lines[-1])
    for file in (checkpoints / "LATEST/model/consolidated").iterdir():
        shutil.copy(file, into / file.name)
    for file in (ROOT / "configs/quickstart_tokenizer").iterdir():
        shutil.copy(file, into / file.name)
    return ""


def found(tree, key):
    """All values of a key anywhere in a recipe."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            if name == key:
                yield value
            yield from found(value, key)
    elif isinstance(tree, list):
        for value in tree:
            yield from found(value, key)


def mapping(recipe, part):
    """A section of a recipe, empty where it is none."""
    section = recipe.get(part)
    return section if isinstance(section, dict) else {}


def changes(recipe):
    """What makes a recipe small: number of ranks, and options."""
    options = []
    section = recipe.get("distributed") or {}
    sizes = {key: min(section.get(key) or 1, 2) for key in SIZES}
    for key in SIZES:
        if section.get(key) not in (None, sizes[key]):
            options.append(f"--distributed.{key}={sizes[key]}")
    if sizes["pp_size"] > 1 and "layers_per_stage" in (section.get("pipeline") or {}):
        options.append("--distributed.pipeline.layers_per_stage=1")
    for key in ("dp_size", "dp_replicate_size"):
        if section.get(key) not in (None, "none") and not recipe.get("separate_meshes"):
            options.append(f"--distributed.{key}=none")
    ranks = max(sizes["tp_size"] * sizes["pp_size"] * sizes["cp_size"], sizes["ep_size"] * sizes["pp_size"], 2)
    if recipe.get("separate_meshes"):
        ranks = sum(
            int(mesh.get("dp_size", 1)) * int(mesh.get("pp_size", 1)) for mesh in (section, recipe["teacher_distributed"])
        )
    for part in ("dataset", "validation_dataset"):
        if "Megatron" in str(mapping(recipe, part).get("_target_")):
            options.append(f"--{part}.paths={ROOT / 'recipes/data/shakespeare'}")
    steps = recipe.get("step_scheduler", {})
    options += ["--step_scheduler.max_steps=3", "--step_scheduler.num_epochs=1", "--step_scheduler.local_batch_size=2",
                "--step_scheduler.global_batch_size=8"]
    if "ckpt_every_steps" in steps:
        options.append("--step_scheduler.ckpt_every_steps=2")
    if steps.get("val_every_steps") is not None:
        options.append("--step_scheduler.val_every_steps=2")
    if "lr_warmup_steps" in (recipe.get("lr_scheduler") or {}):
        options.append("--lr_scheduler.lr_warmup_steps=1")
    if "benchmark" in recipe:
        options.append("--benchmark.warmup_steps=1")
    for part in ("dataset", "validation_dataset"):
        for key in ("seq_len", "seq_length"):
            if isinstance(mapping(recipe, part).get(key), int):
                options.append(f"--{part}.{key}=128")
        if "vocab_size" in mapping(recipe, part):
            options.append(f"--{part}.vocab_size={VOCABULARY}")
    for key, value in (("mask_token_id", VOCABULARY - 1), ("vocab_size", VOCABULARY)):
        if key in mapping(recipe, "dllm"):
            options.append(f"--dllm.{key}={value}")
    if (recipe.get("packed_sequence") or {}).get("packed_sequence_size"):
        options.append("--packed_sequence.packed_sequence_size=256")
    return ranks, options


def needs(recipe):
    """The repositories that a recipe names and that have no twin."""
    names = [value for key in ("pretrained_model_name_or_path", "tokenizer_name") for value in found(recipe, key)]
    data = [value for key in ("dataset_name", "path_or_dataset_id") for value in found(recipe, key)]
    names = [value for value in names if isinstance(value, str) and not os.path.exists(value)]
    data = [value for value in data if isinstance(value, str) and not value.startswith("./sample-datasets")]
    return set(names) - set(MODELS) | set(data) - set(DATA) - set(FILES)


def run(binary, path, home, work):
    with open(path) as file:
        recipe = yaml.safe_load(file)
    missing = needs(recipe)
    if missing:
        return "absent", f"no twin of {', '.join(sorted(missing))}"
    ranks, options = changes(recipe)
    command = [binary, "run", path, f"--nproc-per-node={ranks}", *options,
               f"--checkpoint.checkpoint_dir={work / 'checkpoints'}"]
    environment = dict(os.environ, HF_HOME=str(home), HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=work)
    except subprocess.TimeoutExpired:
        return "failed", "not done after 300 s"
    finally:
        shutil.rmtree(work / "checkpoints", ignore_errors=True)
    lines = (done.stdout + done.stderr).strip().splitlines()
    if done.returncode != 0:
        errors = [line for line in lines if "error" in line or "unsupported" in line] or lines[-1:]
        return "failed", f"status {done.returncode}: {errors[0]}"
    steps = [line.split("| step ")[1] for line in lines if "| step " in line]
    return "ran", f"{ranks} ranks: step {' '.join(steps[-1].split()[:7])}" if steps else f"{ranks} ranks"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+", type=pathlib.Path, metavar="RECIPES")
    parser.add_argument("--binary", type=os.path.abspath, default=ROOT / "build/release/automodel")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the twins, which are made if they are not there")
    options = parser.parse_args()
    files = []
    for place in options.recipes:
        files += sorted(place.rglob("*.yaml")) if place.is_dir() else [place]
    counts = dict(ran=0, failed=0, absent=0)
    with tempfile.TemporaryDirectory() as scratch:
        work = pathlib.Path(scratch)
        home = options.keep or work / "home"
        if not home.exists():
            make_data(home)
            for name, golden in MODELS.items():
                shutil.rmtree(work / golden, ignore_errors=True)
                shutil.rmtree(work / f"{golden}-made", ignore_errors=True)
                fault = make_model(options.binary, golden, snapshot(home, "model", name), work)
                if fault:
                    print(f"no twin of {name}: {fault}", flush=True)
        for name in TEMPLATES:
            template = work / "examples" / name
            template.parent.mkdir(parents=True, exist_ok=True)
            template.write_text(
                "{% for m in messages %}<|{{ m.role }}|>\n{% if m.role == 'assistant' %}{% generation %}"
                "{{ m.content }}{{ eos_token }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}"
                "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
            )
        for name, rows_of in FILES.items():
            (work / name).write_text("\n".join(map(json.dumps, rows_of(64))))
        rows = work / "sample-datasets/prompt_completion"  # as recipes name it
        rows.mkdir(parents=True)
        for name in ("train", "validation"):
            lines = (json.dumps(dict(prompt=f"What is {i} + {i}?", completion=f"It is {2 * i}.")) for i in range(64))
            (rows / f"{name}.jsonl").write_text("\n".join(lines))
        for path in files:
            verdict, text = run(options.binary, path.resolve(), home.resolve(), work)
            counts[verdict] += 1
            print(f"{verdict:6s} {path.name}: {text}", flush=True)
    print(f"{counts['ran']} ran, {counts['failed']} failed, {counts['absent']} without their models or data")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
