#!/usr/bin/env python3
"""Makes tests/golden/dllm/recipe.safetensors: what AutoModel's DiffusionGemmaSFTRecipe makes of samples.

Run after make_diffusion_goldens.py, whose tiny model it loads: python scripts/goldens/make_dllm_goldens.py;
needs nemo_automodel 0.7.0 (and torch, transformers, safetensors).

Two micro-batches of two samples on one rank, in steps 0 and 3, seed 42, dllm: mode block_diffusion,
vocab_size 96, pad_block_size 8, pad_seq_len_divisible 4, encoder_loss_weight 0.7. For step s and
micro-batch m (names begin "s<s>.<m>."):

  sample<i>, prompt<i>                    tokens of a sample, and how many are its prompt's
  input_ids, loss_mask, attention_mask    [B, S], collated
  canvas_ids, canvas_labels               [B, R]; labels are -100 where nothing is scored
  is_conditioned                          [B]

and "s<s>.loss", "s<s>.dllm_loss" of the step, in training mode.
"""

import json
import os
import types

import nemo_automodel
import torch
from nemo_automodel.components.datasets.dllm.collate import DLLMCollator
from nemo_automodel.components.loss.dllm_loss import encoder_ar_loss
from nemo_automodel.components.models.common import BackendConfig
from nemo_automodel.components.models.diffusion_gemma.model import DiffusionGemmaForBlockDiffusion
from nemo_automodel.recipes.dllm.strategy import BlockDiffusionStrategy
from nemo_automodel.recipes.dllm.train_ft import DiffusionGemmaSFTRecipe
from safetensors.torch import load_file, save_file
from transformers.models.diffusion_gemma import DiffusionGemmaConfig

ROOT = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tests", "golden")
MODEL = os.path.join(ROOT, "diffusion_gemma")
FOLDER = os.path.join(ROOT, "dllm")
TEXT_WEIGHT = 0.7


def load_model():
    saved = json.load(open(os.path.join(MODEL, "config.json")))
    saved.pop("freeze_router")
    config = DiffusionGemmaConfig(**saved)
    config.text_config.torch_dtype = torch.float32
    backend = BackendConfig(
        attn="sdpa",
        linear="torch",
        rms_norm="torch",
        rope_fusion=False,
        experts="torch",
        dispatcher="torch",
        enable_hf_state_dict_adapter=True,
    )
    model = DiffusionGemmaForBlockDiffusion(config, backend=backend).float()
    weights = load_file(os.path.join(MODEL, "model.safetensors"))
    model.load_state_dict(model.state_dict_adapter.from_hf(weights), strict=True)
    return model.train()


def bare_recipe(model):
    """The recipe with what its batch functions read, without a run around it."""
    recipe = DiffusionGemmaSFTRecipe.__new__(DiffusionGemmaSFTRecipe)
    recipe.dllm_strategy = BlockDiffusionStrategy()
    recipe.dllm_loss_fn = recipe.dllm_strategy.create_loss_fn(dict(vocab_size=96))
    recipe.mask_token_id = 0
    recipe.dllm_eps = 1e-3
    recipe.dllm_block_size = None
    recipe.dllm_half_life_ratio = 0.25
    recipe.canvas_length = model.canvas_length
    recipe.block_diffusion_sliding_window = model.text_config.sliding_window
    recipe.self_conditioning_p = 0.5
    recipe._self_cond_base_seed = 42
    recipe.step_scheduler = types.SimpleNamespace(step=0, grad_acc_steps=2)
    recipe.distributed_config = types.SimpleNamespace(autocast_dtype=None)
    return recipe


def make_sample(generator, prompt, response):
    ids = torch.randint(4, 96, (prompt + response,), generator=generator).tolist()
    return dict(
        input_ids=ids, loss_mask=[0] * prompt + [1] * response, attention_mask=[1] * len(ids)
    )


def make_step(recipe, model, step, generator, out):
    recipe.step_scheduler.step = step
    collate = DLLMCollator(
        pad_token_id=0, eos_token_id=1, block_size=8, pad_seq_len_divisible=4, response_window=True
    )
    parts, num_canvas, num_text = [], 0, 0
    for i, lengths in enumerate((((11, 13), (6, 21)), ((9, 5), (4, 10)))):
        samples = [make_sample(generator, *pair) for pair in lengths]
        for j, sample in enumerate(samples):
            out[f"s{step}.{i}.sample{j}"] = torch.tensor(sample["input_ids"])
            out[f"s{step}.{i}.prompt{j}"] = torch.tensor(lengths[j][0])
        batch = collate(samples)
        ids, mask, attended = batch["input_ids"], batch["loss_mask"], batch["attention_mask"]
        noisy, is_noise, p_mask = recipe._apply_corruption(ids, mask, microbatch_idx=i)
        window = recipe._build_response_window(
            ids, noisy, is_noise, mask, p_mask, attention_mask=attended, microbatch_idx=i
        )
        coin = recipe._decide_self_conditioning(len(samples), i)
        num_canvas += int(window["loss_mask"].sum())
        num_text += int((attended[:, :-1] & attended[:, 1:]).sum())
        labels = torch.where(window["loss_mask"], window["target_ids"], -100)
        for name, value in dict(
            input_ids=ids,
            loss_mask=mask.long(),
            attention_mask=attended,
            canvas_ids=window["canvas_ids"],
            canvas_labels=labels,
            is_conditioned=coin.long(),
        ).items():
            out[f"s{step}.{i}.{name}"] = value
        parts.append((batch, window, coin))
    total = canvas_total = 0
    for batch, window, coin in parts:
        result = model(
            input_ids=batch["input_ids"],
            canvas_ids=window["canvas_ids"],
            encoder_position_ids=window["encoder_position_ids"],
            encoder_padding_mask=window["encoder_padding_mask"],
            decoder_position_ids=window["decoder_position_ids"],
            decoder_attention_mask=window["decoder_attention_mask"],
            decoder_padding_mask=window["decoder_padding_mask"],
            do_self_conditioning=coin,
        )
        canvas = recipe.dllm_loss_fn(
            logits=result.logits,
            target_ids=window["target_ids"],
            noise_mask=window["noise_mask"],
            p_mask=window["p_mask"],
            loss_mask=window["loss_mask"],
            num_diffusion_tokens=num_canvas,
        )
        text = encoder_ar_loss(
            result.encoder_logits,
            batch["input_ids"],
            valid_mask=batch["attention_mask"].bool(),
            num_tokens=num_text,
        )
        total = total + canvas.total_loss + TEXT_WEIGHT * text
        canvas_total = canvas_total + canvas.dllm_loss
    out[f"s{step}.loss"] = total.detach()
    out[f"s{step}.dllm_loss"] = canvas_total.detach()
    print("step", step, total.item(), canvas_total.item())


def main():
    torch.set_num_threads(1)
    model = load_model()
    recipe = bare_recipe(model)
    generator = torch.Generator().manual_seed(5)
    out = {}
    for step in (0, 3):
        make_step(recipe, model, step, generator, out)
    os.makedirs(FOLDER, exist_ok=True)
    save_file({key: value.contiguous() for key, value in out.items()}, os.path.join(FOLDER, "recipe.safetensors"))
    with open(os.path.join(FOLDER, "SOURCE.md"), "w") as text:
        text.write(
            "# Where this file comes from\n\n"
            "Made by `scripts/goldens/make_dllm_goldens.py`, which says what each tensor is, with the tiny model "
            f"of `../diffusion_gemma`, nemo_automodel {nemo_automodel.__version__} and torch "
            f"{torch.__version__.split('+')[0]}; float32 on a CPU, one thread.\n"
        )


main()
