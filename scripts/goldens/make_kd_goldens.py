#!/usr/bin/env python3
"""Recomputes the losses of recipes that distil with transformers and PyTorch.

Restates KnowledgeDistillationRecipeForNextTokenPrediction of NeMo AutoModel 0.7.0 over the rows, the student and the
sampler of make_loss_goldens.py (run it first): loss = (1 - kd_ratio) * cross-entropy + kd_ratio * divergence, both
summed over labelled tokens and divided by the label tokens of the step; divergence = temperature^2 *
sum(p * (log p - log q)) of softmaxes of logits / temperature. Writes

  tests/recipes/data/tiny_teacher/    a random Llama, wider and deeper than tiny_llama, bfloat16 weights
  tests/recipes/data/kd.json          per scenario: overrides and the expected records
  tests/recipes/data/kd_weights.safetensors   what SGD makes of the student in the scenario "weights"

usage: make_kd_goldens.py   (by the python that scripts/setup_peers.sh prints)
"""

import json
import math

import torch
import transformers
from safetensors.torch import save_file

from make_loss_goldens import OUT, collate, learning_rate, make_samples, order_of, read_rows

BASE = {
    "global_batch_size": 4,
    "local_batch_size": 2,
    "max_steps": 3,
    "num_epochs": 1,
    "shuffle": True,
    "optimizer": "torch.optim.AdamW",
    "lr": 1e-3,
    "weight_decay": 0.01,
    "schedule": None,
    "max_norm": 1.0,
    "kd_ratio": 0.5,
    "temperature": 1.0,
    "validates": False,
}

SCENARIOS = {
    "mixed": {"validates": True},
    "temperature_2": {"temperature": 2.0, "kd_ratio": 0.7, "validates": True},
    "teacher_alone": {"kd_ratio": 1.0},
    "labels_alone": {"kd_ratio": 0.0, "temperature": 3.0},
    "weights": {"optimizer": "torch.optim.SGD", "lr": 0.5, "weight_decay": 0.0, "temperature": 1.5},
}


def make_teacher():
    student = transformers.AutoConfig.from_pretrained(OUT / "tiny_llama")
    config = transformers.LlamaConfig(
        vocab_size=student.vocab_size,
        hidden_size=24,
        intermediate_size=56,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=0,
        attn_implementation="eager",
    )
    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3)
    model.bfloat16().save_pretrained(OUT / "tiny_teacher")


def load(name):
    return transformers.LlamaForCausalLM.from_pretrained(
        OUT / name, dtype=torch.float32, attn_implementation="eager"
    )


def sums_of_losses(student, teacher, batch, temperature):
    """Sums over the labelled tokens: cross-entropies, and divergences from the teacher."""
    ids, labels, mask = batch
    is_scored = labels.flatten() != -100
    of_student = student(input_ids=ids, attention_mask=mask).logits.flatten(0, 1)[is_scored].float()
    with torch.no_grad():
        of_teacher = teacher(input_ids=ids, attention_mask=mask).logits.flatten(0, 1)[is_scored].float()
    ce = torch.nn.functional.cross_entropy(of_student, labels.flatten()[is_scored], reduction="sum")
    log_q = torch.log_softmax(of_student / temperature, -1)
    log_p = torch.log_softmax(of_teacher / temperature, -1)
    kd = torch.nn.functional.kl_div(log_q, log_p, reduction="sum", log_target=True)
    return ce, kd * temperature**2


def mix(scenario, ce, kd):
    if scenario["kd_ratio"] == 1:
        ce = ce.detach() * 0
    return (1 - scenario["kd_ratio"]) * ce + scenario["kd_ratio"] * kd, ce


def validate(student, teacher, samples, scenario):
    student.eval()
    totals, count = [0.0, 0.0, 0.0], 0
    with torch.no_grad():
        for begin in range(0, len(samples), scenario["local_batch_size"]):
            batch = collate(samples[begin : begin + scenario["local_batch_size"]])
            ce, kd = sums_of_losses(student, teacher, batch, scenario["temperature"])
            loss, ce = mix(scenario, ce, kd)
            totals = [total + float(part) for total, part in zip(totals, (loss, ce, kd))]
            count += int((batch[1] != -100).sum())
    student.train()
    names = ("val_loss", "ce_loss", "kd_loss")
    return {**{name: total / count for name, total in zip(names, totals)}, "num_label_tokens": count}


def train_step(student, teacher, group, scenario):
    """The record of a step, whose gradients are left in the student, clipped."""
    labels = sum(int((batch[1] != -100).sum()) for batch in group)
    record = {"loss": 0.0, "ce_loss": 0.0, "kd_loss": 0.0}
    for batch in group:
        ce, kd = sums_of_losses(student, teacher, batch, scenario["temperature"])
        loss, ce = mix(scenario, ce, kd)
        (loss / labels).backward()
        for name, part in (("loss", loss), ("ce_loss", ce), ("kd_loss", kd)):
            record[name] += float(part.detach()) / labels
    norm = math.sqrt(sum(float((p.grad.double() ** 2).sum()) for p in student.parameters()))
    for parameter in student.parameters():
        parameter.grad.mul_(min(1.0, scenario["max_norm"] / (norm + 1e-6)))
    return {**record, "grad_norm": norm, "num_label_tokens": labels}


def run(scenario):
    student, teacher = load("tiny_llama").train(), load("tiny_teacher").eval()
    train, validation = make_samples(read_rows("rows.jsonl")), make_samples(read_rows("validation.jsonl"))
    optimizer = getattr(torch.optim, scenario["optimizer"].split(".")[-1])(
        student.parameters(), lr=scenario["lr"], weight_decay=scenario["weight_decay"]
    )
    local = scenario["local_batch_size"]
    accumulation = scenario["global_batch_size"] // local
    order = order_of(len(train), 0, scenario["shuffle"])
    batches = [collate([train[i] for i in order[at : at + local]]) for at in range(0, len(order), local)]
    records = []
    for step in range(scenario["max_steps"]):
        optimizer.param_groups[0]["lr"] = learning_rate(scenario, step, scenario["max_steps"])
        optimizer.zero_grad()
        group = batches[step * accumulation : (step + 1) * accumulation]
        records.append({"step": step, **train_step(student, teacher, group, scenario)})
        optimizer.step()
    golden = {"scenario": scenario, "records": records}
    if scenario["validates"]:
        golden["validation"] = validate(student, teacher, validation, scenario)
    return golden, student


def main():
    torch.set_num_threads(1)
    make_teacher()
    goldens = {}
    for name, changes in SCENARIOS.items():
        goldens[name], student = run({**BASE, **changes})
        print(name, [(round(r["ce_loss"], 5), round(r["kd_loss"], 5)) for r in goldens[name]["records"]])
        if name == "weights":
            weights = {key: value.contiguous() for key, value in student.state_dict().items() if key != "lm_head.weight"}
            save_file(weights, str(OUT / "kd_weights.safetensors"))
    (OUT / "kd.json").write_text(json.dumps(goldens, indent=1) + "\n")


if __name__ == "__main__":
    main()
