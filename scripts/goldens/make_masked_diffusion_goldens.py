#!/usr/bin/env python3
"""Makes tests/golden/masked_diffusion/recipe.safetensors: what AutoModel's DiffusionLMSFTRecipe makes of samples.

usage: make_masked_diffusion_goldens.py FOLDER

Run after make_llada_goldens.py, whose tiny model it loads by the released code in FOLDER; needs nemo_automodel 0.7.0 (and torch,
transformers, safetensors).

Two micro-batches of two samples on one rank, in steps 0 and 3, seed 42, eps 0.001, padding token 3 and end-of-sequence token 2,
in several forms:

  plain        mode mdlm, mask_token_id 126, of the model of ../llada
  blocks       the same with pad_block_size 8, pad_seq_len_divisible 12, supervise_padding
  scdd         mode scdd of the same model: vocab_size 128, num_timesteps 50, uniform_ratio 0.3, schedule_shape 1.5,
               schedule_peak 0.4
  idlm         mode idlm of ../llama_default: mask_token_id 126, pad_block_size 8
  idlm_blocks  the same with block_length 4, auto_balance_clean_loss

For form f, step s and micro-batch m (names begin "f.s<s>.<m>."):

  sample<i>, supervised<i>                tokens of a sample, and which of them count
  input_ids, loss_mask, attention_mask    [B, S], collated
  noisy_ids, is_noise                     [B, S]
  p_mask                                  [B]: mdlm's probability of a token to be hidden, scdd's time

and "f.s<s>.loss", "f.s<s>.dllm_loss" of the step, and "f.losses": of three AdamW steps as in make_goldens.py, on step 0's batches.
"""

import os
import sys
import types

import nemo_automodel
import torch
from nemo_automodel.components.attention.idlm_mask import create_idlm_sdpa_mask
from nemo_automodel.components.datasets.dllm.collate import DLLMCollator
from nemo_automodel.recipes.dllm.strategy import get_dllm_strategy
from nemo_automodel.recipes.dllm.train_ft import DiffusionLMSFTRecipe
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

import make_goldens
import make_llada_goldens

FOLDER = os.path.join(make_goldens.ROOT, "masked_diffusion")
# Of each form the dllm section and the collator's options.
FORMS = {
    "plain": (dict(mode="mdlm"), dict()),
    "blocks": (dict(mode="mdlm"), dict(block_size=8, pad_seq_len_divisible=12, supervise_padding=True)),
    "scdd": (
        dict(mode="scdd", vocab_size=128, num_timesteps=50, uniform_ratio=0.3, schedule_shape=1.5, schedule_peak=0.4),
        dict(),
    ),
    "idlm": (dict(mode="idlm"), dict(block_size=8)),
    "idlm_blocks": (dict(mode="idlm", block_length=4, auto_balance_clean_loss=True), dict(block_size=8)),
}
# Prompt, answer, and, of a conversation, a second prompt and answer, of each sample of a step.
LENGTHS = ((((11, 13), (6, 21)), ((9, 5, 4, 6), (4, 10))), (((3, 8, 2, 5), (7, 7)), ((2, 30), (20, 3))))


def load_model(code, mode):
    if mode == "idlm":
        folder = os.path.join(make_goldens.ROOT, "llama_default")
        return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").float().eval()
    return make_llada_goldens.load(code, os.path.join(make_goldens.ROOT, "llada"))


def bare_recipe(section):
    """The recipe with what its batch functions read, without a run around it."""
    recipe = DiffusionLMSFTRecipe.__new__(DiffusionLMSFTRecipe)
    recipe.dllm_strategy = get_dllm_strategy(section["mode"])
    recipe.dllm_loss_fn = recipe.dllm_strategy.create_loss_fn(dict(section, mask_token_id=126))
    recipe.mask_token_id = 126
    recipe.dllm_eps = 1e-3
    recipe.dllm_block_size = None
    recipe.dllm_half_life_ratio = 0.25
    recipe._self_cond_base_seed = 42
    recipe.step_scheduler = types.SimpleNamespace(step=0, grad_acc_steps=2)
    return recipe


def make_sample(generator, lengths):
    supervised = [i % 2 for i, length in enumerate(lengths) for _ in range(length)]
    ids = torch.randint(4, 120, (len(supervised),), generator=generator).tolist()
    return dict(input_ids=ids, loss_mask=supervised, attention_mask=[1] * len(ids))


def loss_of_pair(recipe, model, batch, num_supervised):
    """IDLMStrategy.forward_backward() without what is around it."""
    length = batch["input_ids"].size(1)
    attended = batch["attention_mask"]
    places = torch.arange(length)
    mask = create_idlm_sdpa_mask(
        length, recipe.dllm_strategy.block_size, attended, device=torch.device("cpu"), dtype=torch.float32
    )
    logits = model(
        input_ids=torch.cat([batch["_noisy_input_ids"], batch["_clean_input_ids"]], dim=1),
        attention_mask=mask,
        position_ids=torch.cat([places, places]).unsqueeze(0).expand(len(attended), -1),
        use_cache=False,
    ).logits
    return recipe.dllm_loss_fn(
        logits, batch["_clean_input_ids"], batch["_noise_mask"], attended, seq_len=length, num_diffusion_tokens=num_supervised
    )


def loss_of_denoised(recipe, model, batch, num_supervised):
    return recipe.dllm_loss_fn(
        logits=model(input_ids=batch["_noisy_input_ids"], use_cache=False).logits,
        target_ids=batch["_clean_input_ids"],
        noise_mask=batch["_noise_mask"],
        p_mask=batch["_p_mask"],
        loss_mask=batch["loss_mask"],
        num_diffusion_tokens=num_supervised,
        noisy_input_ids=batch["_noisy_input_ids"],
    )


def step_losses(recipe, model, batches):
    """Both losses of a step's batches, as the recipe's steps compute them."""
    num_supervised = sum(int(batch["loss_mask"].sum()) for batch in batches)
    is_pair = hasattr(recipe.dllm_strategy, "block_size")
    loss_of = loss_of_pair if is_pair else loss_of_denoised
    losses = [loss_of(recipe, model, batch, num_supervised) for batch in batches]
    return sum(loss.total_loss for loss in losses), sum(loss.dllm_loss for loss in losses)


def make_step(recipe, model, form, step, out):
    recipe.step_scheduler.step = step
    collate = DLLMCollator(pad_token_id=3, eos_token_id=2, **FORMS[form][1])
    generator = torch.Generator().manual_seed(5 + step)
    batches = []
    for i, lengths in enumerate(LENGTHS[step != 0]):
        place = f"{form}.s{step}.{i}."
        samples = [make_sample(generator, each) for each in lengths]
        for j, sample in enumerate(samples):
            out[f"{place}sample{j}"] = torch.tensor(sample["input_ids"])
            out[f"{place}supervised{j}"] = torch.tensor(sample["loss_mask"])
        batches.append(collate(samples))
    recipe.dllm_strategy.pre_step(recipe, batches)
    for i, batch in enumerate(batches):
        for name, value in dict(
            input_ids=batch["input_ids"],
            loss_mask=batch["loss_mask"].long(),
            attention_mask=batch["attention_mask"],
            noisy_ids=batch["_noisy_input_ids"],
            is_noise=batch["_noise_mask"].long(),
            p_mask=batch["_p_mask"][:, 0],
        ).items():
            out[f"{form}.s{step}.{i}.{name}"] = value
    loss, dllm_loss = step_losses(recipe, model, batches)
    out[f"{form}.s{step}.loss"] = loss.detach()
    out[f"{form}.s{step}.dllm_loss"] = dllm_loss.detach()
    print(form, "step", step, loss.item(), dllm_loss.item())
    return batches


def three_steps(recipe, model, batches):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss, _ = step_losses(recipe, model, batches)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    print("losses", [round(loss.item(), 6) for loss in losses])
    return torch.stack(losses)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    code = make_llada_goldens.released_code(sys.argv[1])
    out = {}
    for form, (section, _) in FORMS.items():
        model = load_model(code, section["mode"])
        recipe = bare_recipe(section)
        first, _ = [make_step(recipe, model, form, step, out) for step in (0, 3)]
        out[form + ".losses"] = three_steps(recipe, model, first)
    os.makedirs(FOLDER, exist_ok=True)
    save_file({key: value.contiguous() for key, value in out.items()}, os.path.join(FOLDER, "recipe.safetensors"))
    with open(os.path.join(FOLDER, "SOURCE.md"), "w") as text:
        text.write(
            "# Where this file comes from\n\n"
            "Made by `scripts/goldens/make_masked_diffusion_goldens.py`, which says what each tensor is, with the tiny models of\n"
            "`../llada`, by GSAI-ML/LLaDA-8B-Base's released code, and `../llama_default`, by transformers;\n"
            f"nemo_automodel {nemo_automodel.__version__} and torch {torch.__version__.split('+')[0]}, float32 on a CPU, one "
            "thread.\n"
        )


if __name__ == "__main__":
    main()
