#!/usr/bin/env python3
"""Recomputes the losses of recipes with transformers and PyTorch.

Restates the documented training semantics of NeMo AutoModel 0.7.0 in plain Python (sampler order,
collating, loss = sum of cross-entropies / global label tokens, clipping, schedules, partial last
group, validation) over a Hugging Face model, and writes what tests/recipes compares with:

  tests/recipes/data/tiny_llama/      a random Llama (config.json, model.safetensors)
  tests/recipes/data/rows.jsonl       training rows
  tests/recipes/data/validation.jsonl
  tests/recipes/data/losses.json      per scenario: overrides and the expected records

Needs torch, transformers, tokenizers, safetensors (any Python environment; not used at run time).
"""

import json
import math
import pathlib

import tokenizers
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "recipes" / "data"
TOKENIZER = ROOT / "configs" / "quickstart_tokenizer"
SEED = 42

BASE = {
    "global_batch_size": 4,
    "local_batch_size": 2,
    "num_epochs": 1,
    "max_steps": None,
    "shuffle": True,
    "optimizer": "torch.optim.AdamW",
    "lr": 1e-3,
    "weight_decay": 0.01,
    "schedule": None,
    "max_norm": 1.0,
    "val_every_steps": None,
}

SCENARIOS = {
    "plain_sft": {"max_steps": 6},
    "cosine_with_warmup": {
        "max_steps": 6,
        "num_epochs": 3,
        "schedule": {"warmup": 2, "init": 1e-4, "min": 1e-5},
    },
    "validation": {"max_steps": 4, "val_every_steps": 2},
    "partial_last_group": {"global_batch_size": 8, "local_batch_size": 2, "num_epochs": 2},
    "adam_l2": {"max_steps": 5, "optimizer": "torch.optim.Adam", "weight_decay": 0.1},
    "clip_at_0.1": {"max_steps": 5, "max_norm": 0.1},
    "shuffle_over_an_epoch_border": {"num_epochs": 3, "max_steps": 14},
    "without_shuffle": {"max_steps": 4, "shuffle": False},
}


def make_model():
    config = transformers.LlamaConfig(
        vocab_size=tokenizers.Tokenizer.from_file(str(TOKENIZER / "tokenizer.json")).get_vocab_size(),
        hidden_size=16,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=0,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).float()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.08)
    model.save_pretrained(OUT / "tiny_llama")


def read_rows(name):
    return [json.loads(line) for line in (OUT / name).read_text().splitlines()]


def make_samples(rows):
    """Column-mapped rows: question + ' ' + answer, labels shifted, only the answer is scored."""
    tokenizer = tokenizers.Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))
    samples = []
    for row in rows:
        prompt = row["question"] + " "
        full = tokenizer.encode(prompt + row["answer"], add_special_tokens=True).ids
        prompt_length = len(tokenizer.encode(prompt, add_special_tokens=False).ids)
        labels = full[1:]
        scored_from = prompt_length - 1
        labels = [-100] * scored_from + labels[scored_from:]
        samples.append((full[:-1], labels))
    return samples


def collate(samples):
    longest = max(len(ids) for ids, _ in samples)
    ids = torch.zeros(len(samples), longest, dtype=torch.long)
    labels = torch.full((len(samples), longest), -100)
    mask = torch.zeros(len(samples), longest, dtype=torch.long)
    for row, (sample_ids, sample_labels) in enumerate(samples):
        ids[row, : len(sample_ids)] = torch.tensor(sample_ids)
        labels[row, : len(sample_labels)] = torch.tensor(sample_labels)
        mask[row, : len(sample_ids)] = 1
    return ids, labels, mask


def order_of(count, epoch, shuffle):
    if not shuffle:
        return list(range(count))
    generator = torch.Generator()
    generator.manual_seed(SEED + epoch)
    return torch.randperm(count, generator=generator).tolist()


def sum_of_losses(model, batch):
    ids, labels, mask = batch
    logits = model(input_ids=ids, attention_mask=mask).logits.float()
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum"
    )


def learning_rate(scenario, steps, total):
    schedule = scenario["schedule"]
    if schedule is None:
        return scenario["lr"]
    if schedule["warmup"] > 0 and steps <= schedule["warmup"]:
        rise = (scenario["lr"] - schedule["init"]) * steps / schedule["warmup"]
        return schedule["init"] + rise
    ratio = (steps - schedule["warmup"]) / (total - schedule["warmup"])
    cosine = 0.5 * (1 + math.cos(math.pi * ratio))
    return schedule["min"] + cosine * (scenario["lr"] - schedule["min"])


def validate(model, samples, local):
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for begin in range(0, len(samples), local):
            batch = collate(samples[begin : begin + local])
            total += float(sum_of_losses(model, batch))
            count += int((batch[1] != -100).sum())
    model.train()
    return total / count, count


def run(scenario):
    model = transformers.LlamaForCausalLM.from_pretrained(
        OUT / "tiny_llama", dtype=torch.float32, attn_implementation="eager"
    )
    model.train()
    train, validation = make_samples(read_rows("rows.jsonl")), make_samples(read_rows("validation.jsonl"))
    optimizer_class = getattr(torch.optim, scenario["optimizer"].split(".")[-1])
    optimizer = optimizer_class(
        model.parameters(), lr=scenario["lr"], weight_decay=scenario["weight_decay"]
    )
    local = scenario["local_batch_size"]
    accumulation = scenario["global_batch_size"] // local
    batches_per_epoch = math.ceil(len(train) / local)
    epoch_length = math.ceil(batches_per_epoch / accumulation)
    total = min(scenario["max_steps"] or 10**9, scenario["num_epochs"] * epoch_length)
    records, step = [], 0
    for epoch in range(scenario["num_epochs"]):
        order = order_of(len(train), epoch, scenario["shuffle"])
        batches = [
            collate([train[i] for i in order[begin : begin + local]])
            for begin in range(0, len(order), local)
        ]
        for begin in range(0, len(batches), accumulation):
            if step >= total:
                return records
            group = batches[begin : begin + accumulation]
            labels = sum(int((batch[1] != -100).sum()) for batch in group)
            for parameter_group in optimizer.param_groups:
                parameter_group["lr"] = learning_rate(scenario, step, total)
            optimizer.zero_grad()
            reported = 0.0
            for batch in group:
                loss = sum_of_losses(model, batch) / labels
                loss.backward()
                reported += float(loss.detach())
            norm = math.sqrt(
                sum(float((p.grad.double() ** 2).sum()) for p in model.parameters())
            )
            scale = min(1.0, scenario["max_norm"] / (norm + 1e-6))
            for parameter in model.parameters():
                parameter.grad.mul_(scale)
            optimizer.step()
            record = {
                "step": step,
                "epoch": epoch,
                "loss": reported,
                "grad_norm": norm,
                "lr": learning_rate(scenario, step + 1, total),
                "num_label_tokens": labels,
            }
            every = scenario["val_every_steps"]
            is_last = step + 1 >= total
            ends_epoch = begin + accumulation >= len(batches)
            if every and (step % every == every - 1 or is_last or ends_epoch):
                record["val_loss"], record["val_num_label_tokens"] = validate(
                    model, validation, local
                )
            records.append(record)
            step += 1
    return records


def main():
    torch.set_num_threads(1)
    OUT.mkdir(parents=True, exist_ok=True)
    source = (ROOT / "recipes" / "data" / "gsm8k_train.jsonl").read_text().splitlines()
    short = [line for line in source if len(line) < 450]
    (OUT / "rows.jsonl").write_text("\n".join(short[:21]) + "\n")
    (OUT / "validation.jsonl").write_text("\n".join(short[21:27]) + "\n")
    make_model()
    goldens = {}
    for name, changes in SCENARIOS.items():
        scenario = {**BASE, **changes}
        goldens[name] = {"scenario": scenario, "records": run(scenario)}
        print(name, [round(record["loss"], 5) for record in goldens[name]["records"]])
    (OUT / "losses.json").write_text(json.dumps(goldens, indent=1) + "\n")
    (OUT / "SOURCE.md").write_text(
        "Made by scripts/goldens/make_loss_goldens.py with torch "
        f"{torch.__version__.split('+')[0]}, transformers {transformers.__version__}, tokenizers "
        f"{tokenizers.__version__}. Rows are from GSM8K (MIT, see recipes/data).\n"
        "kd.json, kd_weights.safetensors and tiny_teacher are made by scripts/goldens/make_kd_goldens.py with the same.\n"
    )


if __name__ == "__main__":
    main()
