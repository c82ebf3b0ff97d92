#!/usr/bin/env python3
"""Makes tests/golden/classifiers/: tiny models that classify sequences, and what transformers computes with them.

Each folder is a Hugging Face model of a family's class ...ForSequenceClassification, with a reference.safetensors as
make_goldens.py writes them; the second sequence is padded at its end. Labels are -100 but at the last token that is
not the pad token, where they are the sequence's class: transformers takes the logits there by itself. `logits` are
those of all tokens, left out for models with windows. Encoders take the first token; BERT's second sequence is a pair. `loss` and the gradients are of transformers' own loss.

tests/recipes/data/tiny_classifier is a model that a run trains on pairs.jsonl beside it, tiny_encoder a BERT and
tiny_modernbert a ModernBERT; classification.json, encoder_classification.json and modernbert_classification.json say what PyTorch gives for the same steps: rows in their order, batches of 4, two a step, cut to 24 tokens; a step's loss
is the mean over its 8 rows; gradients clipped at 1, AdamW. Validation on the last rows, after every third step.

Run: python scripts/goldens/make_classifier_goldens.py [--folder DIR] [NAME ...]
NAMEs are those of make_goldens.py, ENCODERS and RUNS; by default the folders that are kept, and the runs. Needs torch, transformers,
safetensors.
"""

import argparse
import json
import os
import random
import shutil

import torch
from safetensors.torch import save_file
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    LlamaConfig,
    ModernBertConfig,
)

from make_goldens import MODELS, NONE_IS_SAID, ROOT, checkpoint_tensors, fill

KEPT = ("qwen3_tied", "gpt2", "gemma2", "phi", "gpt_neox", "qwen3_moe", "olmo2", "gpt_oss")
SIZES = dict(vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
ENCODERS = {
    "bert": ("bert", dict(SIZES, max_position_embeddings=32)),
    "roberta": ("roberta", dict(SIZES, max_position_embeddings=36, type_vocab_size=1, hidden_act="gelu_new")),
    "xlm_roberta": ("xlm-roberta", dict(SIZES, max_position_embeddings=36, type_vocab_size=1)),
    "camembert": ("camembert", dict(SIZES, max_position_embeddings=36, type_vocab_size=1, classifier_dropout=0.2)),
    "distilbert": ("distilbert", dict(vocab_size=128, dim=32, hidden_dim=64, n_layers=2, n_heads=4,
                                      max_position_embeddings=32)),
    "modernbert": ("modernbert", dict(SIZES, num_hidden_layers=4, local_attention=8, hidden_activation="gelu",
                                      max_position_embeddings=64)),
    "modernbert_mean": ("modernbert", dict(SIZES, num_hidden_layers=3, local_attention=6, classifier_pooling="mean",
                                           layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                                           norm_bias=True, attention_bias=True, mlp_bias=True, classifier_bias=True,
                                           classifier_activation="silu", max_position_embeddings=64)),
}
NUM_LABELS = 3
PAD = 3


def make_batch(vocab_size, length):
    generator = torch.Generator().manual_seed(99)
    ids = torch.randint(4, vocab_size, (2, length), generator=generator)
    ids[0, 5] = PAD  # inside a text it is a token as any other
    ids[1, -7:] = PAD
    mask = torch.ones_like(ids)
    mask[1, -7:] = 0
    return dict(input_ids=ids, attention_mask=mask)


def make_encoder(name, root):
    model_type, options = ENCODERS[name]
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **options, pad_token_id=PAD, num_labels=NUM_LABELS)
    model = AutoModelForSequenceClassification.from_config(config, attn_implementation="eager").float().eval()
    fill(model)
    folder = os.path.join(root, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    length = 24
    batch = make_batch(config.vocab_size, length)
    types = getattr(config, "type_vocab_size", 0)
    if types > 0:
        batch["token_type_ids"] = torch.zeros_like(batch["input_ids"])
    if types > 1:
        batch["token_type_ids"][1, 6:-7] = 1
    classes = torch.tensor([2, 0])
    result = model(**batch, labels=classes)
    result.loss.backward()
    hidden = model.base_model(**batch).last_hidden_state
    if model_type == "bert":
        logits = model.classifier(model.bert.pooler.dense(hidden).tanh())
    elif model_type == "distilbert":
        logits = model.classifier(model.pre_classifier(hidden).relu())
    elif model_type == "modernbert":
        if config.classifier_pooling == "mean":
            mask = batch["attention_mask"].unsqueeze(-1)
            hidden = ((hidden * mask).sum(1) / mask.sum(1)).unsqueeze(1)
        logits = model.classifier(model.head(hidden))
    else:
        logits = model.classifier.out_proj(model.classifier.dense(hidden).tanh())
    assert torch.allclose(logits[:, 0], result.logits, rtol=0, atol=1e-6)
    labels = torch.full_like(batch["input_ids"], -100)
    labels[:, 0] = classes
    out = dict(batch, labels=labels, loss=result.loss.detach())
    if model_type != "modernbert":  # in a window of padding there is nothing to attend to, and a mean is of a text
        out["logits"] = logits.detach().contiguous()
    for key, parameter in model.named_parameters():
        # A number that all scores of a query share: no gradient but rounding
        if not key.endswith(("self.key.bias", "k_lin.bias")):
            out["grad." + key] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    save_file(out, os.path.join(folder, "reference.safetensors"))
    print(f"{name:20s} {type(model).__name__:36s} loss {result.loss.item():.6f}")


def make_model(name, root):
    if name in ENCODERS:
        return make_encoder(name, root)
    model_type, options, length = MODELS[name]
    torch.manual_seed(0)
    said = {k: v for k, v in options.items() if v is not None or k in NONE_IS_SAID}
    said.update(pad_token_id=PAD, num_labels=NUM_LABELS)
    config = AutoConfig.for_model(model_type, **said)
    model = AutoModelForSequenceClassification.from_config(config, attn_implementation="eager").float().eval()
    fill(model)
    folder = os.path.join(root, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    batch = make_batch(config.get_text_config().vocab_size, length)
    classes = torch.tensor([2, 0])
    scores = []
    model.score.register_forward_hook(lambda module, inputs, output: scores.append(output))
    result = model(**batch, labels=classes, use_cache=False)
    result.loss.backward()
    places = (batch["input_ids"] != PAD).long().mul(torch.arange(length)).argmax(-1)
    assert torch.equal(scores[0][torch.arange(2), places], result.logits)
    labels = torch.full_like(batch["input_ids"], -100)
    labels[torch.arange(2), places] = classes
    out = dict(batch, labels=labels, loss=result.loss.detach())
    if not getattr(config, "sliding_window", None):  # in a window of padding there is nothing to attend to
        out["logits"] = scores[0].detach().contiguous()
    for key, parameter in model.named_parameters():
        if parameter.grad is None:
            continue
        for stored, gradient in checkpoint_tensors(config, key, parameter.grad):
            out["grad." + stored] = gradient.clone().contiguous()
    save_file(out, os.path.join(folder, "reference.safetensors"))
    with open(os.path.join(folder, "config.json")) as file:
        architecture = json.load(file)["architectures"][0]
    print(f"{name:20s} {architecture:36s} loss {result.loss.item():.6f}")


DATA = os.path.join(os.path.dirname(os.path.dirname(ROOT)), "tests", "recipes", "data")
TOKENIZER = os.path.join(os.path.dirname(os.path.dirname(ROOT)), "configs", "quickstart_tokenizer")
WORDS = "the a cat dog runs sleeps quickly near under house tree and then eats small red bird".split()
NUM_TRAINED = 24
MOST_TOKENS = 24


def make_rows():
    """Pairs of sentences: the second has the first one's words in another order, or words of its own."""
    drawn = random.Random(5)
    rows = []
    for index in range(34):
        first = [drawn.choice(WORDS) for _ in range(drawn.randint(2, 12))]
        label = drawn.randint(0, 1)
        second = drawn.sample(first, len(first)) if label else [drawn.choice(WORDS) for _ in range(drawn.randint(2, 16))]
        rows.append(dict(sentence1=" ".join(first), sentence2=" ".join(second), label=label, idx=index))
    with open(os.path.join(DATA, "pairs.jsonl"), "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return rows


SHAPE = dict(vocab_size=2048, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
             max_position_embeddings=64, pad_token_id=1, num_labels=2)
RUNS = {
    "tiny_classifier": ("classification.json", LlamaConfig(**SHAPE, num_key_value_heads=1)),
    "tiny_encoder": ("encoder_classification.json",
                     BertConfig(**SHAPE, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)),
    "tiny_modernbert": ("modernbert_classification.json",
                        ModernBertConfig(**SHAPE, local_attention=8, classifier_pooling="mean", bos_token_id=0,
                                         eos_token_id=0, cls_token_id=0, sep_token_id=0)),
}


def make_run(name, records_file, config, rows):
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(config, attn_implementation="eager").float().eval()
    fill(model)
    folder = os.path.join(DATA, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    has_types = getattr(config, "type_vocab_size", 0) > 1

    def outputs(part):
        texts = tokenizer([row["sentence1"] for row in part], [row["sentence2"] for row in part], truncation=True,
                          max_length=MOST_TOKENS, padding=True, return_tensors="pt", return_token_type_ids=has_types)
        assert not has_types or texts["token_type_ids"].sum() > 0
        labels = torch.tensor([row["label"] for row in part])
        logits = model(**texts).logits
        return logits, labels

    def validate():
        total, right = 0.0, 0
        for begin in range(NUM_TRAINED, len(rows), 4):
            with torch.no_grad():
                logits, labels = outputs(rows[begin : begin + 4])
            total += torch.nn.functional.cross_entropy(logits, labels, reduction="sum").item()
            right += (logits.argmax(-1) == labels).sum().item()
        return dict(val_loss=total / (len(rows) - NUM_TRAINED), val_accuracy=right / (len(rows) - NUM_TRAINED))

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    records = []
    for step in range(6):
        optimizer.zero_grad()
        total, right = 0.0, 0
        for begin in (0, 4):
            first = (step * 8 + begin) % NUM_TRAINED
            logits, labels = outputs(rows[first : first + 4])
            loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum") / 8
            loss.backward()
            total += loss.item()
            right += (logits.argmax(-1) == labels).sum().item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        records.append(dict(loss=total, accuracy=right / 8, grad_norm=norm.item()))
        if step % 3 == 2:
            records[-1].update(validate())
    with open(os.path.join(DATA, records_file), "w") as file:
        json.dump(dict(num_trained=NUM_TRAINED, most_tokens=MOST_TOKENS, records=records), file, indent=1)
        file.write("\n")
    print(records)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", default=os.path.join(ROOT, "classifiers"))
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    os.makedirs(arguments.folder, exist_ok=True)
    rows = make_rows()
    for name in arguments.names or (*KEPT, *ENCODERS, *RUNS):
        if name in RUNS:
            make_run(name, *RUNS[name], rows)
        else:
            make_model(name, arguments.folder)


if __name__ == "__main__":
    main()
