"""Writes tests/peft/data: what Hugging Face PEFT computes with adapters on models of tests/golden.

usage: make_lora_goldens.py [NAME]...   (by the python that scripts/setup_peers.sh prints, with peft installed)

A folder NAME holds the adapter in PEFT's format, and reference.safetensors: a batch, logits, loss, the gradient of every
tensor of the adapter, the losses of three AdamW steps, and some weights of the merged model.
"""

import json
import os
import shutil
import sys

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import make_diffusion_goldens
from make_goldens import checkpoint_tensors

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
OUT = os.path.join(ROOT, "tests", "peft", "data")

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
EXPERTS = dict(target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"])
# Of q, k and v, which are one layer here, two have ranks of their own and one another alpha.
PATTERNS = dict(
    rank_pattern={"model.layers.0.self_attn.q_proj": 6, r"(k|o)_proj": 2, r"layers\.[1-9]\d*\..*up_proj": 5},
    alpha_pattern={"v_proj": 3, r"^model\.layers\.0\.mlp\.down_proj": 20.5},
)
MODEL_CLASSES = {
    "mistral4": transformers.Mistral4ForCausalLM,
    "diffusion_gemma": make_diffusion_goldens.DiffusionGemmaForBlockDiffusion,
}
# base, target modules, other options of LoraConfig
ADAPTERS = {
    "llama_all": ("llama_default", PROJECTIONS, {}),
    "llama_qv": ("llama_default", ["q_proj", "v_proj"], {}),
    "llama_head": ("llama_default", PROJECTIONS + ["lm_head"], {}),
    "llama_dora": ("llama_default", PROJECTIONS, dict(use_dora=True)),
    "llama_saved": ("llama_default", PROJECTIONS, dict(modules_to_save=["embed_tokens", "lm_head", "model.norm"])),
    "qwen3_saved": ("qwen3_tied", ["o_proj", "down_proj"], dict(modules_to_save=["embed_tokens"], ensure_weight_tying=True)),
    "llama_biases": ("llama_linear_biases", PROJECTIONS, {}),
    "qwen3_all": ("qwen3_tied", PROJECTIONS, {}),
    "qwen3_qv": ("qwen3_tied", ["q_proj", "v_proj"], {}),
    "qwen3_head": ("qwen3_tied", PROJECTIONS + ["lm_head"], {}),
    "qwen3_dora": ("qwen3_tied", ["q_proj", "v_proj", "down_proj"], dict(use_dora=True)),
    "qwen3_moe_experts": ("qwen3_moe", ["q_proj", "o_proj"], EXPERTS),
    "deepseek_v3_experts": ("deepseek_v3", [], EXPERTS),
    "mixtral_experts": ("mixtral", ["q_proj"], dict(EXPERTS, rank_pattern=dict.fromkeys(EXPERTS["target_parameters"], 2))),
    "gpt_oss_experts": ("gpt_oss", ["q_proj"], EXPERTS),
    "mistral4_experts": ("mistral4", ["q_b_proj"], EXPERTS),
    "glm_moe_dsa_experts": ("glm_moe_dsa", ["q_a_proj", "kv_b_proj", "o_proj"], EXPERTS),
    "kimi_linear_experts": (
        "kimi_linear",
        ["q_proj", "b_proj", "f_a_proj", "f_b_proj", "g_b_proj", "kv_b_proj", "o_proj", "up_proj"],
        EXPERTS,
    ),
    "deepseek_v4_experts": ("deepseek_v4", ["q_a_proj", "o_b_proj", "down_proj"], EXPERTS),
    "llama_patterns": ("llama_default", PROJECTIONS + ["lm_head"], PATTERNS),
    "qwen3_patterns_dora": ("qwen3_tied", PROJECTIONS, dict(PATTERNS, use_dora=True)),
    "llama_patterns_rslora": ("llama_linear_biases", PROJECTIONS, dict(PATTERNS, use_rslora=True)),
    "gpt2_all": ("gpt2_inner_untied", ["c_attn", "c_proj", "c_fc"], {}),
    "gpt2_dora": ("gpt2", ["c_attn", "attn.c_proj", "c_fc"], dict(use_dora=True)),
    "phi3_all": ("phi3_default", ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"], {}),
}
# What transformers' modules are called in a base's files, by which references name adapters too.
IN_FILES = {
    "kimi_linear": {".forget_gate.": ".", ".mlp.shared_experts.": ".block_sparse_moe.shared_experts."},
    "deepseek_v4": {
        "model.layers.": "layers.",
        ".self_attn.": ".attn.",
        ".mlp.": ".ffn.",
        ".q_a_proj": ".wq_a",
        ".o_b_proj": ".wo_b",
        ".shared_experts.down_proj": ".shared_experts.w2",
    },
}
# Of every layer, whose modules exist twice there with one weight: in the encoder and in the decoder.
TWINS = ("model.decoder.layers.", "model.encoder.language_model.layers.")
ADAPTERS["diffusion_gemma_experts"] = (
    "diffusion_gemma",
    [
        f"{twin}{layer}.{module}"
        for twin in TWINS
        for layer in range(4)
        for module in ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj")
    ]
    + ["model.decoder.self_conditioning.up_proj"],
    dict(target_parameters=["experts.gate_up_proj", "experts.down_proj"]),
)
MERGED = ["q_proj", "down_proj", "lm_head", "qkv_proj", "c_attn", "c_proj"]


def make_adapter(name):
    """The base with an adapter of random numbers, none of which is zero."""
    base, modules, options = ADAPTERS[name]
    model_class = MODEL_CLASSES.get(base, AutoModelForCausalLM)
    model = model_class.from_pretrained(
        os.path.join(ROOT, "tests", "golden", base), dtype=torch.float32, attn_implementation="eager"
    )
    config = peft.LoraConfig(
        r=4, lora_alpha=12, target_modules=modules, bias="none", task_type=None if base == "diffusion_gemma" else "CAUSAL_LM", **options
    )
    model = peft.get_peft_model(model, config).eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for key, parameter in sorted(model.named_parameters()):
            if "lora_A" in key or "lora_B" in key or "modules_to_save" in key:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
            elif "lora_magnitude" in key:
                parameter.mul_(1 + 0.2 * torch.rand(parameter.shape, generator=generator))
    if base == "diffusion_gemma":
        share_twins(model)
    return model


def share_twins(model):
    """Gives the encoder's adapters the decoder's parameters."""
    parameters = dict(model.named_parameters())
    for name, module in list(model.named_modules()):
        if TWINS[1] not in name:
            continue
        for key in list(module._parameters):
            if "lora_" in name and f"{name}.{key}" in parameters:
                module._parameters[key] = parameters[f"{name}.{key}".replace(TWINS[1], TWINS[0])]


def plain_name(key, base):
    """The tensor's name in the adapter's file, without PEFT's prefix."""
    key = key.removeprefix("base_model.model.").replace(".modules_to_save.default", "").replace(".default", "")
    key = key.replace(TWINS[1], TWINS[0])
    for module, name in IN_FILES.get(base, {}).items():
        key = key.replace(module, name)
    return key.replace("lora_magnitude_vector.weight", "lora_magnitude_vector")


def stacked(key, value, model):
    """A factor of experts' adapters as [E, r, in] or [E, out, r]; another tensor as it is."""
    if ".experts." not in key:
        return value
    config = model.config.get_text_config()
    experts = config.num_local_experts if hasattr(config, "num_local_experts") else config.num_experts
    if "lora_A" in key:
        return value.reshape(experts, -1, value.shape[1]).contiguous()
    return value.reshape(value.shape[0], -1, experts).permute(2, 0, 1).contiguous()


def loss_of(model, batch):
    if isinstance(model.get_base_model(), MODEL_CLASSES["diffusion_gemma"]):
        return make_diffusion_goldens.run(model.get_base_model(), batch)
    logits = model(input_ids=batch["input_ids"]).logits
    loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), batch["labels"].view(-1))
    return logits, loss


def merge(model):
    """The base with the adapter in its weights; in those that two modules have, once."""
    for name, module in model.named_modules():
        if TWINS[1] in name and isinstance(module, peft.tuners.lora.LoraLayer):
            module.scaling = {key: 0.0 for key in module.scaling}
    return model.merge_and_unload()


def make_batch(model, base):
    if base == "diffusion_gemma":
        return make_diffusion_goldens.make_batch(make_diffusion_goldens.TEXT["vocab_size"])
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(3, model.config.vocab_size, (2, 13), generator=generator)
    batch = dict(input_ids=tokens[:, :-1].contiguous(), labels=tokens[:, 1:].contiguous())
    batch["labels"][0, :4] = -100
    return batch


def results(model, batch):
    """Logits and the loss, whose gradients are then in the parameters."""
    *logits, loss = loss_of(model, batch)
    loss.backward()
    names = ["logits"] if len(logits) == 1 else ["encoder_logits", "first_logits", "logits"]
    out = {key: value.detach().contiguous() for key, value in zip(names, logits)}
    if "encoder_logits" in out:
        out["encoder_logits"] = out["encoder_logits"] * batch["attention_mask"][:, :, None]
    return dict(out, loss=loss.detach())


def make(name):
    model = make_adapter(name)
    folder = os.path.join(OUT, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, save_embedding_layers=False)
    if os.path.exists(os.path.join(folder, "README.md")):
        os.remove(os.path.join(folder, "README.md"))
    path = os.path.join(folder, "adapter_config.json")
    with open(path) as file:
        config = json.load(file)
    config["base_model_name_or_path"] = "tests/golden/" + ADAPTERS[name][0]
    config["target_modules"] = sorted(config["target_modules"])
    with open(path, "w") as file:
        json.dump(config, file, indent=2)
        file.write("\n")

    batch = make_batch(model, ADAPTERS[name][0])
    out = dict(batch, **results(model, batch))
    loss = out["loss"]
    for key, parameter in model.named_parameters():
        if parameter.requires_grad:
            gradient = stacked(key, parameter.grad.detach().clone(), model)
            out["grad." + plain_name(key, ADAPTERS[name][0])] = gradient.contiguous()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        step_loss = loss_of(model, batch)[-1]
        step_loss.backward()
        optimizer.step()
        losses.append(step_loss.detach())
    out["losses"] = torch.stack(losses)
    merged = merge(make_adapter(name)).state_dict()
    if model.config.tie_word_embeddings and "lm_head" in ADAPTERS[name][1]:
        del merged["model.embed_tokens.weight"]  # PEFT changes the embedding with its head
    for key, value in merged.items():
        if "encoder" in key:
            continue
        if any(f".{module}.weight" in "." + key for module in MERGED) and (".1." in key or "lm_head" in key):
            changed = ADAPTERS[name][1] + ADAPTERS[name][2].get("modules_to_save", [])
            if key == "lm_head.weight" and "lm_head" not in changed:
                continue
            for tensor_name, tensor in checkpoint_tensors(model.config, key, value):
                out["merged." + tensor_name] = tensor.detach().clone().contiguous()
    made_with = f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}, peft {peft.__version__}"
    save_file(out, os.path.join(folder, "reference.safetensors"), metadata=dict(made_with=made_with))
    print(f"{name:14s} loss {loss.item():.6f} losses {[round(x.item(), 6) for x in losses]}")


torch.set_num_threads(1)
for chosen in sys.argv[1:] or ADAPTERS:
    make(chosen)
