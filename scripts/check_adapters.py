"""Trains adapters with the program and has Hugging Face PEFT load them; checks what the program makes of PEFT's.

usage: check_adapters.py PROGRAM   (by the python that scripts/setup_peers.sh prints, with peft installed)

For tiny bases: two steps with adapters, PEFT's logits of base and adapter against those of the program's merged folder
(`automodel parity`), and the program's merged weights against PEFT's. Exit status 1 when anything differs.
"""

import os
import subprocess
import sys
import tempfile

import peft
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
LLAMA = os.path.join(ROOT, "tests", "recipes", "data", "tiny_llama")
EXPERTS = os.path.join(ROOT, "configs", "tiny", "qwen3_moe")  # a configuration without weights
GOLDEN = os.path.join(ROOT, "tests", "golden")
SHAPES = os.path.join(ROOT, "scripts", "bench")  # configurations without weights too
# base, recipe, its changes
CASES = {
    "all": (LLAMA, "tiny_llama_sft", []),
    "q and v": (LLAMA, "tiny_llama_sft", ["--peft.target_modules=['*.q_proj','*.v_proj']"]),
    "dora": (LLAMA, "tiny_llama_sft", ["--peft.use_dora=true"]),
    "experts": (EXPERTS, "tiny_qwen3_moe", ["--peft.target_modules=['*_proj','*experts']"]),
    "ranks of experts": (EXPERTS, "tiny_qwen3_moe", ["--peft.target_modules=*", "--peft.moe_rank_scaling=true"]),
    "delta nets": (os.path.join(SHAPES, "qwen3_5_shape"), "tiny_llama_sft", ["--peft.target_modules=*"]),
    "a part of delta nets": (
        os.path.join(SHAPES, "qwen3_5_shape"), "tiny_llama_sft",
        ["--peft.target_modules=['*.in_proj_z','*.in_proj_a','*.out_proj']"],
    ),
    "layers of other names": (
        os.path.join(SHAPES, "nemotron_h_shape"), "tiny_llama_sft",
        ["--peft.target_modules=['*.in_proj','*.q_proj','*.up_proj','*.down_proj']"],
    ),
    # Dense and shared MLPs whose names PEFT takes for experts', without experts and beside them.
    "names of experts": (
        os.path.join(GOLDEN, "deepseek_v3"), "mock_pretrain",
        ["--checkpoint.enabled=true", "--peft.target_modules=*_proj"],
    ),
    "names of experts and experts": (
        os.path.join(GOLDEN, "glm4_moe"), "mock_pretrain",
        ["--checkpoint.enabled=true", "--peft.target_modules=['*_proj','*experts']", "--peft.dropout=0.1"],
    ),
    # Experts whose modules are not called `mlp`.
    "experts of Llama 4": (
        os.path.join(GOLDEN, "llama4"), "mock_pretrain",
        ["--checkpoint.enabled=true", "--peft.target_modules=['*_proj','*experts']"],
    ),
    "experts of LFM2": (
        os.path.join(GOLDEN, "lfm2_moe"), "mock_pretrain",
        ["--checkpoint.enabled=true", "--peft.target_modules=['*_proj','*experts']"],
    ),
    "experts of Granite": (
        os.path.join(GOLDEN, "granitemoe_swa"), "mock_pretrain",
        ["--checkpoint.enabled=true", "--peft.target_modules=['*_proj','*experts']"],
    ),
    "patterns": (LLAMA, "tiny_llama_sft", ["--peft.dim=4", "--peft.alpha=12"]),
    "saved modules": (
        os.path.join(GOLDEN, "llama_default"), "mock_pretrain",
        ["--checkpoint.enabled=true", "--peft.modules_to_save=['embed_tokens','lm_head']"],
    ),
    "a saved embedding that is the head": (
        os.path.join(GOLDEN, "qwen3_tied"), "mock_pretrain",
        ["--checkpoint.enabled=true", "--peft.modules_to_save=embed_tokens"],
    ),
    "modules that PEFT saved": (
        os.path.join(GOLDEN, "qwen3_tied"), "mock_pretrain",
        ["--checkpoint.enabled=true", "--peft.dim=4", "--peft.alpha=12", "--peft.modules_to_save=['embed_tokens','model.norm']"],
    ),
}
# Adapters of PEFT's with modules that it saves whole, which merge-lora takes: base, modules, whether the head stays tied.
SAVED = [
    ("llama_default", ["embed_tokens", "lm_head", "layers.0.input_layernorm"], False),
    ("qwen3_tied", ["embed_tokens"], True),
    ("qwen3_tied", ["embed_tokens"], False),
    ("qwen3_tied", ["lm_head"], False),
    ("qwen3_tied", ["embed_tokens", "lm_head"], False),
    ("gpt2", ["wte"], False),
    ("gpt2", ["wte"], True),
    ("llama_default", ["embed_tokens", "lm_head"], True),
    ("llama_default", ["norm"], False),
]
# Options of the adapter of PEFT's that a case begins with.
FIRST = {
    "patterns": dict(
        r=4,
        lora_alpha=12,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        rank_pattern={"q_proj": 6, r"layers\.1\..*(up|down)_proj": 2},
        alpha_pattern={"model.layers.0.self_attn.k_proj": 5, "v_proj": 20.5},
    ),
    "modules that PEFT saved": dict(
        r=4,
        lora_alpha=12,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        modules_to_save=["embed_tokens", "model.norm"],
        ensure_weight_tying=True,
    ),
}


def run(program, *arguments):
    done = subprocess.run([program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def worst_weight(merged, wanted):
    found = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32).state_dict()
    return max((found[name] - value).abs().max().item() for name, value in wanted.items() if "lora" not in name)


def base_of(place, folder):
    """The base's folder: `place`, or one with drawn weights for a configuration alone."""
    if os.path.exists(os.path.join(place, "model.safetensors")):
        return place
    torch.manual_seed(0)
    drawn = os.path.join(folder, "base_" + os.path.basename(place))
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(place)).save_pretrained(drawn)
    return drawn


def adapter_of_peft(options, base_folder, place):
    """Saves an adapter of PEFT's, of random numbers; the model with it."""
    model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base_folder), peft.LoraConfig(**options))
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for key, parameter in sorted(model.named_parameters()):
            if "lora_" in key or "modules_to_save" in key:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.05)
    model.save_pretrained(place)
    return model


def first_adapter(name, base_folder, folder):
    """The folder of a case's adapter of PEFT's."""
    place = os.path.join(folder, name + "_first")
    adapter_of_peft(FIRST[name], base_folder, place)
    return place


def check_merge(program, number, folder):
    """merge-lora of an adapter of PEFT's gives a model of PEFT's logits."""
    base, modules, is_tied = SAVED[number]
    targets = ["c_proj"] if base == "gpt2" else ["o_proj", "down_proj"]
    options = dict(r=4, target_modules=targets, modules_to_save=list(modules), ensure_weight_tying=is_tied)
    place = os.path.join(folder, f"saved_{number}")
    model = adapter_of_peft(options, os.path.join(GOLDEN, base), place).eval()
    merged = place + "_merged"
    run(program, "merge-lora", os.path.join(GOLDEN, base), place, merged)
    tokens = torch.randint(3, model.config.vocab_size, (2, 24), generator=torch.Generator().manual_seed(1))
    found = AutoModelForCausalLM.from_pretrained(merged).eval()
    with torch.no_grad():
        difference = (found(input_ids=tokens).logits - model(input_ids=tokens).logits).abs().max().item()
    print(f"{base} with {', '.join(modules)} whole{' and tied' if is_tied else ''}: merged logits differ by {difference:.3g}")
    return difference < 1e-5


def check(program, name, folder):
    place, recipe, options = CASES[name]
    base_folder = base_of(place, folder)
    checkpoints = os.path.join(folder, name.replace(" ", "_"))
    if name in FIRST:
        options = [*options, f"--peft.adapter_name_or_path={first_adapter(name, base_folder, folder)}"]
    run(
        program, "run", f"recipes/smoke/{recipe}.yaml", f"--checkpoint.checkpoint_dir={checkpoints}",
        "--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained", "--model.config=none",
        f"--model.pretrained_model_name_or_path={base_folder}",
        "--peft._target_=nemo_automodel.components._peft.lora.PeftConfig", "--optimizer.lr=1e-2",
        "--step_scheduler.max_steps=2", *options,
    )  # fmt: skip
    adapter = os.path.join(checkpoints, "LATEST", "model")
    merged = os.path.join(folder, name + "_merged")
    run(program, "merge-lora", base_folder, adapter, merged)
    base = AutoModelForCausalLM.from_pretrained(base_folder, dtype=torch.float32, attn_implementation="eager")
    model = peft.PeftModel.from_pretrained(base, adapter).eval()
    tokens = torch.randint(3, base.config.vocab_size, (2, 24), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits = model(input_ids=tokens).logits
        with model.disable_adapter():
            moved = (logits - model(input_ids=tokens).logits).abs().max().item()
    reference = os.path.join(folder, "reference.safetensors")
    save_file(dict(input_ids=tokens, logits=logits.contiguous()), reference)
    print(f"{name}: the adapter moves logits by {moved:.3g}; {run(program, 'parity', '--model', merged, '--reference', reference).strip()}")
    difference = worst_weight(merged, model.merge_and_unload().state_dict())
    print(f"{name}: merged weights differ from PEFT's by {difference:.3g} at most")
    return moved > 1e-3 and difference < 1e-6


def main():
    torch.set_num_threads(1)
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        results = [check(program, name, folder) for name in CASES]
        results += [check_merge(program, number, folder) for number in range(len(SAVED))]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
