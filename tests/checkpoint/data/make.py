"""Makes the small Hugging Face folders of this directory with transformers and safetensors.

Values follow a rule that the tests compute again: element i (row by row) of the tensor that is k-th
by name is ((7 i + 13 k) mod 251 - 125) / 64, exact in bf16, fp16 and fp32.
"""

import os
import sys

import safetensors.torch
import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))


def fill(tensors):
    for k, name in enumerate(sorted(tensors)):
        tensor = tensors[name]
        if tensor.is_floating_point():
            i = torch.arange(tensor.numel())
            values = ((7 * i + 13 * k) % 251 - 125).double() / 64
            tensor.copy_(values.view(tensor.shape).to(tensor.dtype))


def save(model, name, **options):
    with torch.no_grad():
        state = {n: p for n, p in model.state_dict().items() if n != "lm_head.weight" or
                 not model.config.tie_word_embeddings}
        fill(state)
    model.save_pretrained(os.path.join(HERE, name), **options)


def llama(tied, dtype):
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
        tie_word_embeddings=tied)
    return transformers.LlamaForCausalLM(config).to(dtype)


def main():
    torch.manual_seed(0)
    save(llama(False, torch.bfloat16), "llama_bf16_sharded", max_shard_size="4KB")
    save(llama(True, torch.float32), "llama_tied")
    save(llama(False, torch.float16).model, "llama_base_fp16")
    mixed = {
        "a.f32": torch.tensor([[1.5, -2.0], [0.25, 3.0]]),
        "b.bf16": torch.tensor([1.0, -0.5, 2.0], dtype=torch.bfloat16),
        "c.f16": torch.tensor([0.5, 65504.0], dtype=torch.float16),
        "d.i64": torch.tensor([-1, 2**40]),
        "e.bool": torch.tensor([True, False, True]),
        "f.scalar": torch.tensor(7.0, dtype=torch.float64),
        "g.empty": torch.zeros(0, 3),
    }
    safetensors.torch.save_file(mixed, os.path.join(HERE, "mixed.safetensors"), {"origin": "python"})
    with open(os.path.join(HERE, "SOURCE.md"), "w") as out:
        out.write(f"Made by make.py with torch {torch.__version__}, transformers "
                  f"{transformers.__version__}, safetensors {safetensors.__version__}, Python "
                  f"{sys.version.split()[0]}.\nNothing here comes from elsewhere.\n")


main()
