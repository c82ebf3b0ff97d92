#!/usr/bin/env python3
"""Makes tests/golden/diffusion_gemma/: a tiny DiffusionGemma and what transformers computes with it.

model.safetensors, config.json  the model as transformers saves it (and freeze_router: false)
reference.safetensors           one step of block diffusion:
  input_ids, attention_mask, text_labels                 [B, S]
  prefix_lengths, response_lengths, is_conditioned       [B]
  canvas_ids, canvas_labels                              [B, R]
  block_size, text_weight                                scalars
  encoder_logits, first_logits, logits                   of the text, of a canvas without and with
                                                         (in the rows of is_conditioned) what the
                                                         first pass expected
  loss            canvas: sum of cross-entropies / labels, + text_weight times the same of the text
  grad.<name>     gradient of every parameter but the vision tower's
  losses          loss before each of three AdamW updates (options as in make_goldens.py)
inference.safetensors           input_ids, canvas_ids; first_logits, logits by transformers' own
                                masks and cache, one canvas behind a prompt

The masks of reference.safetensors are made here, by the rule: a token of a canvas block sees the
prompt, the blocks before its own in the text (in sliding layers those within the window that ends
where its block begins) and its whole block.

Run: python scripts/goldens/make_diffusion_goldens.py
"""

import json
import os
import shutil

import safetensors
import torch
import transformers
from safetensors.torch import save_file
from transformers import DynamicCache
from transformers.models.diffusion_gemma import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion

FOLDER = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tests", "golden", "diffusion_gemma"
)
WINDOW, BLOCK, TEXT_WEIGHT = 10, 8, 0.7
TEXT = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=40,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    global_head_dim=16,
    num_global_key_value_heads=1,
    max_position_embeddings=128,
    sliding_window=WINDOW,
    layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    num_experts=4,
    top_k_experts=2,
    moe_intermediate_size=24,
    final_logit_softcapping=6.0,
    pad_token_id=0,
    eos_token_id=1,
    bos_token_id=2,
)
VISION = dict(
    model_type="gemma4_vision",
    hidden_size=16,
    intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=2,
    head_dim=8,
    patch_size=4,
    position_embedding_size=16,
)


def fill(model):
    """Random weights large enough for every part to matter."""
    generator = torch.Generator().manual_seed(1234)
    for name, tensor in list(model.named_parameters()) + list(model.named_buffers()):
        if name.endswith("inv_freq") or name.endswith("embed_scale"):
            continue
        noise = torch.randn(tensor.shape, generator=generator)
        if "norm" in name or name.endswith("scale") or name.endswith("layer_scalar"):
            tensor.data = 1.0 + 0.2 * noise
        else:
            tensor.data = 0.1 * noise


def additive(keep):
    return torch.zeros(keep.shape).masked_fill(~keep, torch.finfo(torch.float32).min)


def text_masks(attention_mask):
    length = attention_mask.shape[1]
    q, k = torch.arange(length)[:, None], torch.arange(length)[None, :]
    masks = {}
    for kind, near in (("full_attention", q >= 0), ("sliding_attention", q - k < WINDOW)):
        keep = ((k <= q) & near)[None] & attention_mask.bool()[:, None, :]
        masks[kind] = additive((keep | (q == k))[:, None])
    return masks


def canvas_masks(batch):
    rows, length = batch["canvas_ids"].shape
    text = batch["input_ids"].shape[1]
    masks = {}
    for kind in ("full_attention", "sliding_attention"):
        keep = torch.zeros(rows, length, text + length, dtype=torch.bool)
        for b in range(rows):
            prefix = int(batch["prefix_lengths"][b])
            response = int(batch["response_lengths"][b])
            for i in range(length):
                if i >= response:
                    keep[b, i, text + i] = True
                    continue
                begin = i // BLOCK * BLOCK
                end = prefix + begin
                first = max(0, end - WINDOW + 1) if kind == "sliding_attention" else 0
                keep[b, i, first:end] = True
                keep[b, i, text + begin : text + min(begin + BLOCK, response)] = True
        masks[kind] = additive(keep[:, None])
    return masks


def make_batch(vocab_size):
    generator = torch.Generator().manual_seed(99)
    prefix, response = torch.tensor([11, 7]), torch.tensor([14, 10])
    length, canvas = 27, 14
    tokens = torch.randint(4, vocab_size, (2, length), generator=generator)
    tokens[0, 3] = 0  # the padding row gets no gradient from the lookup
    ends = prefix + response
    attention_mask = (torch.arange(length)[None, :] < ends[:, None]).long()
    tokens = tokens * attention_mask
    text_labels = torch.full_like(tokens, -100)
    pairs = (attention_mask[:, :-1] & attention_mask[:, 1:]).bool()
    text_labels[:, :-1][pairs] = tokens[:, 1:][pairs]
    places = (prefix[:, None] + torch.arange(canvas)[None, :]).clamp(max=length - 1)
    clean = torch.gather(tokens, 1, places)
    is_noise = torch.rand(clean.shape, generator=generator) < 0.5
    noise = torch.randint(0, vocab_size, clean.shape, generator=generator)
    canvas_labels = clean.clone()
    blocks = torch.arange(canvas) // BLOCK
    chosen = torch.tensor([1, 0])
    canvas_labels[blocks[None, :] != chosen[:, None]] = -100
    canvas_labels[torch.arange(canvas)[None, :] >= response[:, None]] = -100
    canvas_labels[0, 9] = -100
    return dict(
        input_ids=tokens,
        attention_mask=attention_mask,
        text_labels=text_labels,
        prefix_lengths=prefix,
        response_lengths=response,
        is_conditioned=torch.tensor([1, 0]),
        canvas_ids=torch.where(is_noise, noise, clean),
        canvas_labels=canvas_labels,
        block_size=torch.tensor(BLOCK),
        text_weight=torch.tensor(TEXT_WEIGHT),
    )


def capped(model, hidden):
    cap = model.final_logit_softcapping
    return torch.tanh(model.lm_head(hidden).float() / cap) * cap


def mean_loss(logits, labels):
    total = torch.nn.functional.cross_entropy(
        logits.view(-1, logits.shape[-1]), labels.view(-1), ignore_index=-100, reduction="sum"
    )
    return total / (labels != -100).sum()


def run(model, batch):
    cache = DynamicCache()
    encoder = model.model.encoder(
        input_ids=batch["input_ids"],
        attention_mask=text_masks(batch["attention_mask"]),
        past_key_values=cache,
    )
    masks = canvas_masks(batch)
    places = batch["prefix_lengths"][:, None] + torch.arange(batch["canvas_ids"].shape[1])

    def decode(**conditioning):
        hidden = model.model.decoder(
            decoder_input_ids=batch["canvas_ids"],
            past_key_values=cache,
            decoder_attention_mask=masks,
            decoder_position_ids=places,
            **conditioning,
        ).last_hidden_state
        return capped(model, hidden)

    with torch.no_grad():
        first = decode()
    logits = decode(
        self_conditioning_logits=first, self_conditioning_mask=batch["is_conditioned"].bool()
    )
    encoder_logits = capped(model, encoder.last_hidden_state)
    loss = mean_loss(logits, batch["canvas_labels"])
    loss = loss + TEXT_WEIGHT * mean_loss(encoder_logits, batch["text_labels"])
    return encoder_logits, first, logits, loss


def make_reference(model):
    batch = make_batch(TEXT["vocab_size"])
    encoder_logits, first, logits, loss = run(model, batch)
    loss.backward()
    encoder_logits = encoder_logits * batch["attention_mask"][:, :, None]
    out = dict(batch, encoder_logits=encoder_logits, first_logits=first, logits=logits, loss=loss)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            name = name.replace("model.encoder.language_model.", "model.decoder.")
            out["grad." + name] = parameter.grad.clone()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01
    )
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        step_loss = run(model, batch)[3]
        step_loss.backward()
        optimizer.step()
        losses.append(step_loss.detach())
    out["losses"] = torch.stack(losses)
    out = {key: value.detach().contiguous() for key, value in out.items()}
    save_file(out, os.path.join(FOLDER, "reference.safetensors"))
    print("loss", [round(x.item(), 6) for x in losses], len([k for k in out if "grad" in k]), "gradients")


@torch.no_grad()
def make_inference(model):
    generator = torch.Generator().manual_seed(7)
    tokens = torch.randint(4, TEXT["vocab_size"], (2, 19), generator=generator)
    canvas = torch.randint(0, TEXT["vocab_size"], (2, BLOCK), generator=generator)
    first = model(input_ids=tokens, decoder_input_ids=canvas).logits
    logits = model(
        input_ids=tokens, decoder_input_ids=canvas, self_conditioning_logits=first
    ).logits
    out = dict(input_ids=tokens, canvas_ids=canvas, first_logits=first, logits=logits)
    save_file(out, os.path.join(FOLDER, "inference.safetensors"))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = DiffusionGemmaConfig(text_config=TEXT, vision_config=VISION, canvas_length=BLOCK)
    config._attn_implementation = "eager"
    model = DiffusionGemmaForBlockDiffusion(config).float().eval()
    fill(model)
    shutil.rmtree(FOLDER, ignore_errors=True)
    model.save_pretrained(FOLDER)
    extra = os.path.join(FOLDER, "generation_config.json")
    if os.path.exists(extra):
        os.remove(extra)
    path = os.path.join(FOLDER, "config.json")
    saved = json.load(open(path))
    saved["freeze_router"] = False
    json.dump(saved, open(path, "w"), indent=1, sort_keys=True)
    make_inference(model)
    make_reference(model)
    with open(os.path.join(FOLDER, "SOURCE.md"), "w") as out:
        out.write(
            "# Where these files come from\n\n"
            "Made by `scripts/goldens/make_diffusion_goldens.py`, which says what each tensor is, with torch "
            f"{torch.__version__.split('+')[0]}, transformers {transformers.__version__} and "
            f"safetensors {safetensors.__version__}; float32 on a CPU, one thread, eager attention. "
            "The weights are random numbers.\n"
        )


if __name__ == "__main__":
    main()
