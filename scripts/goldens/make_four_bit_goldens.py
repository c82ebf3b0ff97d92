#!/usr/bin/env python3
"""Makes tests/kernels/data/four_bit.safetensors and tests/peft/qlora: what bitsandbytes computes on the CPU.

four_bit.safetensors holds for each case TYPE.FACTORS.DTYPE (nf4 or fp4; plain or nested; float32 or bfloat16)

  values     [300, 128], quantized in blocks of 64
  packed     uint8, two elements a byte
  absmax     float32 or, nested, uint8 with nested_absmax (float32, blocks of 256) and offset (float32)
  dequantized

A folder of tests/peft/qlora is a model (model/), an adapter of it (adapter/, in PEFT's format) and reference.safetensors:
a batch, and what the model with 4-bit weights (transformers' BitsAndBytesConfig) and the adapter computes of it, in the
form of scripts/goldens/make_lora_goldens.py. Everything but the weights is float32.

Run: python scripts/goldens/make_four_bit_goldens.py, by the python that scripts/setup_peers.sh --bitsandbytes prints.
"""

import json
import os
import shutil

import bitsandbytes
import bitsandbytes.functional as F
import peft
import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
KERNELS = os.path.join(ROOT, "tests", "kernels", "data")
OUT = os.path.join(ROOT, "tests", "peft", "qlora")
VERSIONS = (
    f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}, peft {peft.__version__}, "
    f"bitsandbytes {bitsandbytes.__version__}"
)

SIZES = dict(
    vocab_size=128,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=64,
    bos_token_id=1,
    eos_token_id=2,
)
# model_type, its options, options of the quantization
MODELS = {
    "llama_nf4": ("llama", dict(SIZES), dict(bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)),
    "qwen3_fp4": (
        "qwen3",
        dict(SIZES, attention_bias=True, tie_word_embeddings=True),
        dict(bnb_4bit_quant_type="fp4", bnb_4bit_use_double_quant=False),
    ),
}


def make_numbers():
    out = {}
    # bitsandbytes asks for the codes on a GPU unless it is told where.
    for quant_type in ("nf4", "fp4"):
        for nested in (False, True):
            for dtype in (torch.float32, torch.bfloat16):
                generator = torch.Generator().manual_seed(11)
                # Rows of very different sizes, one of zeros. The CPU backend dequantizes rows that are no multiple of 64
                # elements otherwise than they were quantized; those of GPUs do not.
                values = torch.randn(300, 128, generator=generator) * torch.logspace(-3, 1, 300).view(-1, 1)
                values[5] = 0
                values = values.to(dtype)
                packed, state = F.quantize_4bit(values, compress_statistics=nested, quant_type=quant_type)
                name = f"{quant_type}.{'nested' if nested else 'plain'}.{str(dtype).removeprefix('torch.')}."
                out[name + "values"] = values
                out[name + "packed"] = packed.view(-1).clone()
                out[name + "absmax"] = state.absmax.clone()
                if nested:
                    out[name + "nested_absmax"] = state.state2.absmax.clone()
                    out[name + "offset"] = state.offset.view(1).clone()
                    out["dynamic_codes"] = state.state2.code.clone()
                out[name + "dequantized"] = F.dequantize_4bit(packed, state).clone()
    os.makedirs(KERNELS, exist_ok=True)
    save_file(out, os.path.join(KERNELS, "four_bit.safetensors"), metadata=dict(made_with=VERSIONS))


def loss_of(model, batch):
    logits = model(input_ids=batch["input_ids"]).logits
    loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), batch["labels"].view(-1))
    return logits, loss


def plain_name(key):
    return key.removeprefix("base_model.model.").replace(".default", "")


def make_model(name):
    model_type, options, quantization = MODELS[name]
    folder = os.path.join(OUT, name)
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(5)
    config = AutoConfig.for_model(model_type, **options)
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for key, parameter in plain.named_parameters():
        if "bias" in key or "norm" in key:
            parameter.data += 0.1 * torch.randn(parameter.shape)
        elif "proj" in key:
            parameter.data *= 4
    plain.save_pretrained(os.path.join(folder, "model"))

    settings = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.float32, **quantization)
    model = AutoModelForCausalLM.from_pretrained(
        os.path.join(folder, "model"),
        dtype=torch.float32,
        quantization_config=settings,
        device_map="cpu",
        attn_implementation="eager",
    )
    modules = ["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"]
    model = peft.get_peft_model(
        model, peft.LoraConfig(r=4, lora_alpha=12, target_modules=modules, bias="none", task_type="CAUSAL_LM")
    )
    model.train()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for key, parameter in sorted(model.named_parameters()):
            if "lora_" in key:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    model.save_pretrained(os.path.join(folder, "adapter"), save_embedding_layers=False)
    os.remove(os.path.join(folder, "adapter", "README.md"))
    path = os.path.join(folder, "adapter", "adapter_config.json")
    with open(path) as file:
        adapter = json.load(file)
    adapter["base_model_name_or_path"] = f"tests/peft/qlora/{name}/model"
    adapter["target_modules"] = sorted(adapter["target_modules"])
    with open(path, "w") as file:
        json.dump(adapter, file, indent=2)
        file.write("\n")

    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(3, SIZES["vocab_size"], (2, 13), generator=generator)
    batch = dict(input_ids=tokens[:, :-1].contiguous(), labels=tokens[:, 1:].contiguous())
    batch["labels"][0, :4] = -100
    logits, loss = loss_of(model, batch)
    loss.backward()
    out = dict(batch, logits=logits.detach().contiguous(), loss=loss.detach())
    for key, parameter in model.named_parameters():
        if parameter.requires_grad:
            out["grad." + plain_name(key)] = parameter.grad.detach().clone()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        _, step_loss = loss_of(model, batch)
        step_loss.backward()
        optimizer.step()
        losses.append(step_loss.detach())
    out["losses"] = torch.stack(losses)
    save_file(out, os.path.join(folder, "reference.safetensors"), metadata=dict(made_with=VERSIONS))
    kinds = {type(module).__name__ for module in model.modules() if "Linear" in type(module).__name__}
    print(f"{name}: loss {loss.item():.6f}, losses {[round(x.item(), 6) for x in losses]}, {sorted(kinds)}")


def nearest_codes(original):
    """quantize_blockwise by bitsandbytes' own formula, which its GPU kernels share: the CPU's library takes another
    code than the nearest for some numbers next to the middle between two."""

    def quantize(values, **options):
        _, state = original(values, **options)
        formula = torch.ops.bitsandbytes.quantize_blockwise.default._op_dk
        codes, _ = formula(torch._C.DispatchKey.CompositeExplicitAutograd, values, state.code, state.blocksize)
        return codes, state

    return quantize


torch.set_num_threads(1)
F.quantize_blockwise = nearest_codes(F.quantize_blockwise)
default = F.get_4bit_type
F.get_4bit_type = lambda typename, device=None, blocksize=64: default(typename, device or "cpu", blocksize)
make_numbers()
for each in MODELS:
    make_model(each)
