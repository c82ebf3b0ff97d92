#!/usr/bin/env python3
"""Makes tests/golden/encoder_decoders/: tiny T5s, and what transformers computes with them.

Each folder is a Hugging Face model, with a reference.safetensors: `input_ids` and `attention_mask` are the source, the
second one padded at its end; `labels` are the target, with -100 behind its end, and `decoder_input_ids` the same one
place later. `logits`, `loss` and the gradients are transformers'; the loss is the mean over the labels.

tests/recipes/data/tiny_t5 is a model that a run trains on questions.jsonl beside it, and encoder_decoder.json says what
PyTorch gives for the same steps: rows in their order as upstream's make_seq2seq_dataset makes samples of them, batches
of 4, two a step; a step's loss is the mean over its labels; gradients clipped at 1, AdamW. Validation on the last rows,
after every third step.

t5_distances.json has transformers' rows of the table of biases by distance.

Run: python scripts/goldens/make_encoder_decoder_goldens.py
Needs torch, transformers, safetensors.
"""

import json
import os
import random
import shutil

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.models.t5.modeling_t5 import T5Attention

from make_goldens import ROOT, fill

SIZES = dict(vocab_size=96, d_model=32, d_kv=8, d_ff=48, num_heads=3, num_layers=2, decoder_start_token_id=0)
FEW = dict(SIZES, relative_attention_num_buckets=8, relative_attention_max_distance=20)
MODELS = {
    "t5": ("t5", dict(SIZES, num_decoder_layers=3)),
    "t5_untied": ("t5", dict(FEW, feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
    "mt5": ("mt5", dict(FEW, feed_forward_proj="gated-silu", tie_word_embeddings=False)),
}
FOLDER = os.path.join(ROOT, "encoder_decoders")


def untie(model, config):
    """The head as a matrix of its own, as in the released files of T5 1.1."""
    if getattr(config, "scale_decoder_outputs", False):
        return
    config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))


def new_model(model_type, options):
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **options)
    model = AutoModelForSeq2SeqLM.from_config(config, attn_implementation="eager").float().eval()
    untie(model, model.config)
    fill(model)
    return model


def shifted(labels):
    return torch.cat([torch.zeros_like(labels[:, :1]), labels[:, :-1].clamp_min(0)], -1)


def make_model(name):
    model_type, options = MODELS[name]
    model = new_model(model_type, options)
    folder = os.path.join(FOLDER, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    generator = torch.Generator().manual_seed(99)
    ids = torch.randint(2, options["vocab_size"], (2, 70), generator=generator)
    mask = torch.ones_like(ids)
    ids[1, -9:], mask[1, -9:] = 0, 0
    labels = torch.randint(2, options["vocab_size"], (2, 27), generator=generator)
    labels[0, -4:] = -100
    batch = dict(input_ids=ids, attention_mask=mask, decoder_input_ids=shifted(labels))
    result = model(**batch, labels=labels, use_cache=False)
    result.loss.backward()
    out = dict(batch, labels=labels, loss=result.loss.detach(), logits=result.logits.detach().contiguous())
    for key, parameter in model.named_parameters():
        out["grad." + key] = parameter.grad
    save_file(out, os.path.join(folder, "reference.safetensors"))
    print(f"{name:12s} {type(model).__name__:32s} loss {result.loss.item():.6f}")


def make_distances():
    """For several tables [buckets, max_distance, bidirectional], the row of each distance -300 .. 300."""
    distances = torch.arange(-300, 301)
    rows = []
    for buckets, most in ((32, 128), (8, 20), (32, 17), (16, 1000)):
        for both in (True, False):
            found = T5Attention._relative_position_bucket(distances, both, buckets, most)
            rows.append(dict(num_buckets=buckets, max_distance=most, is_bidirectional=both, rows=found.tolist()))
    with open(os.path.join(FOLDER, "..", "t5_distances.json"), "w") as file:
        file.write("[" + ",\n".join(json.dumps(row) for row in rows) + "]\n")


DATA = os.path.join(os.path.dirname(os.path.dirname(ROOT)), "tests", "recipes", "data")
TOKENIZER = os.path.join(os.path.dirname(os.path.dirname(ROOT)), "configs", "quickstart_tokenizer")
WORDS = "the a cat dog runs sleeps quickly near under house tree and then eats small red bird".split()
NUM_TRAINED = 24


def make_rows():
    """Questions about lists of words, in SQuAD's form."""
    drawn = random.Random(5)
    rows = []
    for index in range(34):
        words = [drawn.choice(WORDS) for _ in range(drawn.randint(3, 20))]
        place = drawn.randrange(len(words))
        answers = [" " + " ".join(words[place : place + 3]) + " "] if index != 5 else []
        rows.append(dict(question=f"what is at {place}?", context=" ".join(words),
                         answers=dict(text=answers, answer_start=[0] * len(answers))))
    with open(os.path.join(DATA, "questions.jsonl"), "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return rows


def make_run():
    rows = make_rows()
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    model = new_model("t5", dict(vocab_size=2048, d_model=16, d_kv=8, d_ff=32, num_heads=2, num_layers=2,
                                 dropout_rate=0.0, pad_token_id=pad, decoder_start_token_id=pad))
    folder = os.path.join(DATA, "tiny_t5")
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)

    def batch_of(part):
        sources = [tokenizer(f"question: {r['question']}  context: {r['context']}")["input_ids"] for r in part]
        targets = [tokenizer((r["answers"]["text"] or [""])[0].strip())["input_ids"] for r in part]

        def padded(lists, value):
            most = max(map(len, lists))
            return torch.tensor([each + [value] * (most - len(each)) for each in lists])

        labels = padded(targets, -100)
        return dict(input_ids=padded(sources, pad), attention_mask=padded([[1] * len(s) for s in sources], 0),
                    decoder_input_ids=padded([[pad] + t[:-1] for t in targets], pad)), labels

    def loss_of(part):
        batch, labels = batch_of(part)
        logits = model(**batch, use_cache=False).logits
        total = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        return total, (labels != -100).sum().item()

    def validate():
        with torch.no_grad():
            parts = [loss_of(rows[begin : begin + 4]) for begin in range(NUM_TRAINED, len(rows), 4)]
        return sum(p[0].item() for p in parts) / sum(p[1] for p in parts)

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    records = []
    for step in range(6):
        optimizer.zero_grad()
        firsts = [(step * 8 + begin) % NUM_TRAINED for begin in (0, 4)]
        count = sum(loss_of(rows[first : first + 4])[1] for first in firsts)
        total = 0.0
        for first in firsts:
            loss = loss_of(rows[first : first + 4])[0] / count
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        records.append(dict(loss=total, grad_norm=norm.item(), num_label_tokens=count))
        if step % 3 == 2:
            records[-1].update(val_loss=validate())
    with open(os.path.join(DATA, "encoder_decoder.json"), "w") as file:
        json.dump(dict(num_trained=NUM_TRAINED, records=records), file, indent=1)
        file.write("\n")
    print(records)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for each in MODELS:
        make_model(each)
    make_distances()
    make_run()
