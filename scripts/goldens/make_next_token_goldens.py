#!/usr/bin/env python3
"""Makes the goldens of multi-token prediction: tests/golden/nemotron_h_mtp*.

usage: make_next_token_goldens.py WHEEL_FOLDER

WHEEL_FOLDER holds NeMo AutoModel 0.7.0, unpacked; run by the python that scripts/setup_peers.sh prints. AutoModel's own
model and loss compute all numbers, on a CPU in float32. Its Mamba layers need a GPU, so these models have none.

A folder holds config.json, model.safetensors in the released models' names, and training.safetensors: the batch, logits,
the loss without and with the further tokens, and the gradients of the latter.
"""

import json
import os
import shutil
import sys

import torch
from safetensors.torch import save_file

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden")
SIZES = dict(
    vocab_size=96, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
    max_position_embeddings=64, mamba_num_heads=4, mamba_head_dim=8, ssm_state_size=12, n_groups=2,
    n_routed_experts=4, num_experts_per_tok=2, n_group=2, topk_group=2, moe_intermediate_size=24,
    moe_shared_expert_intermediate_size=20, routed_scaling_factor=2.5, bos_token_id=1, eos_token_id=2, pad_token_id=None,
    layers_block_type=["full_attention", "moe", "mlp"],
)

# name -> (what the folder's config.json says of further tokens, what the recipe says, whether documents are packed)
MODELS = {
    "nemotron_h_mtp": (
        dict(num_nextn_predict_layers=2, mtp_layers_block_type=["full_attention", "moe"]),
        dict(mtp_loss_scaling_factor=0.3),
        True,
    ),
    "nemotron_h_mtp_repeated": (
        dict(num_nextn_predict_layers=1, mtp_layers_block_type=["full_attention", "mlp"]),
        dict(num_nextn_predict_layers=3, mtp_use_repeated_layer=True),
        False,
    ),
}


def make_batch(is_packed):
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(4, SIZES["vocab_size"], (2, 21), generator=generator)
    batch = dict(input_ids=tokens[:, :-1].contiguous(), labels=tokens[:, 1:].contiguous())
    batch["labels"][0, :3] = -100
    batch["labels"][1, 8:10] = -100
    if is_packed:
        batch["document_ids"] = torch.tensor([[1] * 9 + [2] * 11, [1] * 4 + [2] * 5 + [3] * 11])
    return batch


def fill(model):
    generator = torch.Generator().manual_seed(1)
    for name, tensor in list(model.named_parameters()) + list(model.named_buffers()):
        if name.endswith("e_score_correction_bias"):
            tensor.data = 0.3 * torch.randn(tensor.shape, generator=generator)
        elif name.endswith("norm.weight") or name.endswith("layernorm.weight") or "norm_f" in name:
            tensor.data = 1.0 + 0.2 * torch.randn(tensor.shape, generator=generator)
        elif tensor.is_floating_point():
            tensor.data = 0.2 * torch.randn(tensor.shape, generator=generator)


def losses_of(model, batch):
    from nemo_automodel.components.loss.masked_ce import MaskedCrossEntropy
    from nemo_automodel.components.loss.mtp import calculate_mtp_loss

    loss_fn = MaskedCrossEntropy()
    documents = batch.get("document_ids")
    length = batch["input_ids"].shape[1]
    sees = torch.ones(length, length, dtype=torch.bool).tril()[None, None]
    if documents is not None:
        sees = sees & (documents[:, None, :, None] == documents[:, None, None, :])
    mask = torch.zeros(sees.shape).masked_fill(~sees, float("-inf")).expand(2, 1, -1, -1)
    out = model(batch["input_ids"], causal_mask_mapping=dict(full_attention=mask))
    count = int((batch["labels"] != -100).sum())
    main = loss_fn(out.logits, batch["labels"], num_label_tokens=count)
    further = calculate_mtp_loss(
        loss_fn, mtp_per_depth_h=out.mtp_per_depth_h, labels=batch["labels"], model=model,
        scaling_factor=out.mtp_loss_scaling_factor, num_label_tokens=count, seq_idx=documents,
    )
    return out.logits, main, main + further


def make(name):
    from nemo_automodel.components.models.common.utils import BackendConfig
    from nemo_automodel.components.models.nemotron_v3.model import NemotronHForCausalLM
    from transformers import AutoConfig

    of_folder, of_recipe, is_packed = MODELS[name]
    config = AutoConfig.for_model("nemotron_h", **SIZES, **of_folder, dtype=torch.float32)
    config.torch_dtype = torch.float32
    backend = BackendConfig(attn="sdpa", linear="torch", rms_norm="torch", experts="torch", dispatcher="torch",
                            rope_fusion=False, gate_precision=torch.float32)
    model = NemotronHForCausalLM(config, backend, **of_recipe).float().train()
    fill(model)
    batch = make_batch(is_packed)
    logits, main, loss = losses_of(model, batch)
    loss.backward()

    folder = os.path.join(ROOT, name)
    shutil.rmtree(folder, ignore_errors=True)
    config.architectures = ["NemotronHForCausalLM"]
    config.save_pretrained(folder)
    to_hf = model.state_dict_adapter.to_hf
    tensors = to_hf({key: value.detach() for key, value in model.state_dict().items()})
    save_file({key: value.clone().contiguous() for key, value in tensors.items()},
              os.path.join(folder, "model.safetensors"), metadata=dict(format="pt"))
    gradients = to_hf({key: value.grad for key, value in model.named_parameters() if value.grad is not None})
    out = dict(batch, logits=logits.detach(), main_loss=main.detach(), loss=loss.detach())
    out.update({"grad." + key: value for key, value in gradients.items()})
    save_file({key: value.clone().contiguous() for key, value in out.items()},
              os.path.join(folder, "training.safetensors"))
    with open(os.path.join(folder, "recipe.json"), "w") as file:
        json.dump(of_recipe, file)
        file.write("\n")
    print(f"{name:28s} loss {main.item():.6f} with further tokens {loss.item():.6f}, {len(gradients)} gradients")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.path.insert(0, sys.argv[1])
    torch.set_num_threads(1)
    for each in MODELS:
        make(each)
