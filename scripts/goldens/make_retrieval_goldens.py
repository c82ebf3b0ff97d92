#!/usr/bin/env python3
"""Makes tests/recipes/data/retrieval.json: what PyTorch and transformers give for runs that train models for search.

The models are tests/recipes/data/tiny_classifier (a Llama), tiny_encoder (a BERT) and tiny_modernbert, without their
heads and with attention in both directions; the data, searches.jsonl and searches_left.jsonl beside them, are queries
with passages. A run takes six steps of eight questions, in batches of four or, of the runs with `ranks`, every other one on
each of two ranks: AdamW, gradients clipped at 1, norms and biases not decayed. Validation on the questions that are left
after every third step. Each case says the keys of the recipe that it is for. Records are of float64; `error` is the
largest relative one of float32's numbers, with texts alone and padded, by both ways to compute attention.

Run: python scripts/goldens/make_retrieval_goldens.py. Needs torch and transformers.
"""

import json
import os
import random

import torch
from transformers import AutoModel, AutoTokenizer

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.path.join(ROOT, "tests", "recipes", "data")
TOKENIZER = os.path.join(ROOT, "configs", "quickstart_tokenizer")
WORDS = "the a cat dog runs sleeps quickly near under house tree and then eats small red bird".split()
NUM_TRAINED = 24
NUM_PASSAGES = 4
Q_MAX_LEN, P_MAX_LEN = 12, 16
QUERY_PREFIX, PASSAGE_PREFIX = "query:", "passage:"
CASES = {
    "mean": dict(model="tiny_classifier", pooling="avg", normalizes=True, temperature=0.05),
    "last": dict(model="tiny_classifier", pooling="last", normalizes=False, temperature=1.0),
    "sum": dict(model="tiny_classifier", pooling="weighted_avg", normalizes=True, temperature=0.2),
    "mean_dot": dict(model="tiny_classifier", pooling="avg", normalizes=False, temperature=1.0),
    "bert_first": dict(model="tiny_encoder", pooling="cls", normalizes=True, temperature=0.1),
    "modernbert_mean": dict(model="tiny_modernbert", pooling="avg", normalizes=True, temperature=0.1),
    "shared": dict(model="tiny_classifier", pooling="avg", normalizes=True, temperature=0.05, ranks="detached"),
    "shared_trained": dict(model="tiny_classifier", pooling="avg", normalizes=True, temperature=0.05, ranks="trained"),
}


def make_rows():
    """Answers have a query's words in another order and some more; other passages have words of their own."""
    drawn = random.Random(7)
    rows = []
    for index in range(34):
        query = [drawn.choice(WORDS) for _ in range(drawn.randint(2, 8))]
        answer = drawn.sample(query, len(query)) + [drawn.choice(WORDS) for _ in range(drawn.randint(0, 6))]
        others = [" ".join(drawn.choice(WORDS) for _ in range(drawn.randint(2, 14)))
                  for _ in range(drawn.randint(2, NUM_PASSAGES))]
        row = {"query": " ".join(query), "pos_doc": " ".join(answer), "neg_doc": others}
        if index % 3 == 1:  # the other ways to write the same
            row = {"question": row["query"], "pos_doc": [{"text": row["pos_doc"]}],
                   "neg_doc": [{"text": text} for text in others]}
        rows.append(row)
    for name, part in (("searches.jsonl", rows[:NUM_TRAINED]), ("searches_left.jsonl", rows[NUM_TRAINED:])):
        with open(os.path.join(DATA, name), "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in part)
    return rows


def texts_of(row):
    text = lambda value: value["text"] if isinstance(value, dict) else value
    answers = row["pos_doc"] if isinstance(row["pos_doc"], list) else [row["pos_doc"]]
    others = [text(each) for each in row["neg_doc"]]
    passages = [text(answers[0])] + [others[i % len(others)] for i in range(NUM_PASSAGES - 1)]
    return row.get("query", row.get("question")), passages


def pool(hidden, pooling):
    """One vector of a text's states [1, S, D]."""
    if pooling == "avg":
        return hidden.mean(1)
    if pooling == "weighted_avg":
        return hidden.sum(1)
    return hidden[:, 0] if pooling == "cls" else hidden[:, -1]


def make_run(case, rows, dtype, attention="eager", pads=False):
    torch.manual_seed(0)
    model = AutoModel.from_pretrained(os.path.join(DATA, case["model"]), attn_implementation=attention).to(dtype).eval()
    model.config.is_causal = False
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)

    def embed_text(text, most):
        batch = tokenizer([text], truncation=True, max_length=most, return_tensors="pt", return_token_type_ids=False)
        return pool(model(**batch).last_hidden_state, case["pooling"])

    def embed_padded(texts, most):
        batch = tokenizer(texts, truncation=True, max_length=most, padding=True, return_tensors="pt",
                          return_token_type_ids=False)
        states = model(**batch).last_hidden_state
        lengths = batch["attention_mask"].sum(1)
        return torch.cat([pool(states[i : i + 1, :length], case["pooling"]) for i, length in enumerate(lengths)])

    def embed(texts, most):
        out = embed_padded(texts, most) if pads else torch.cat([embed_text(text, most) for text in texts])
        return torch.nn.functional.normalize(out, dim=-1) if case["normalizes"] else out

    def embedded(part):
        queries, passages = zip(*(texts_of(row) for row in part))
        return (embed([f"{QUERY_PREFIX} {query}" for query in queries], Q_MAX_LEN),
                embed([f"{PASSAGE_PREFIX} {text}" for group in passages for text in group], P_MAX_LEN))

    def scaled(scores):
        return scores / case["temperature"] if case["normalizes"] else scores

    def own_scores(part):
        queries, passages = embedded(part)
        return scaled((queries.unsqueeze(1) * passages.view(len(part), NUM_PASSAGES, -1)).sum(-1))

    def losses(part):
        """The sum of the losses of eight rows, and how many answers were found."""
        halves = [part[0::2], part[1::2]]
        if "ranks" not in case:
            scores = [(own_scores(half), torch.zeros(len(half), dtype=torch.long)) for half in halves]
        else:
            both = [embedded(half) for half in halves]
            scores = []
            for rank, (queries, own) in enumerate(both):
                passages = [other if case["ranks"] == "trained" or other is own else other.detach()
                            for _, other in both]
                scores.append((scaled(queries @ torch.cat(passages).t()),
                               (torch.arange(4) + 4 * rank) * NUM_PASSAGES))
        total = sum(torch.nn.functional.cross_entropy(each, wanted, reduction="sum") for each, wanted in scores)
        return total, sum((each.argmax(-1) == wanted).sum().item() for each, wanted in scores)

    def validate():
        left = rows[NUM_TRAINED:]
        with torch.no_grad():
            scores = own_scores(left)
        wanted = torch.zeros(len(left), dtype=torch.long)
        ranks = (scores > scores[:, :1]).sum(-1) + 1
        return dict(val_loss=torch.nn.functional.cross_entropy(scores, wanted).item(),
                    val_acc1=(ranks == 1).double().mean().item(), val_mrr=(1 / ranks.double()).mean().item())

    plain = [p for name, p in model.named_parameters() if name.endswith(".bias") or "norm" in name.lower()]
    known = {id(p) for p in plain}
    decayed = [p for p in model.parameters() if id(p) not in known]
    optimizer = torch.optim.AdamW([dict(params=decayed), dict(params=plain, weight_decay=0.0)], lr=5e-3,
                                  weight_decay=0.1)
    records = []
    for step in range(6):
        optimizer.zero_grad()
        first = step * 8 % NUM_TRAINED
        total, right = losses(rows[first : first + 8])
        (total / 8).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        records.append(dict(loss=total.item() / 8, train_accuracy=right / 8, grad_norm=norm.item()))
        if step % 3 == 2:
            records[-1].update(validate())
    return records


def error_of(found, wanted):
    """The largest relative error of numbers that are no counts."""
    numbers = ("loss", "grad_norm", "val_loss")
    for ours, exact in zip(found, wanted):
        assert all(ours[key] == exact[key] for key in exact if key not in numbers), "a rank depends on rounding"
    return max(abs(ours[key] - exact[key]) / exact[key]
               for ours, exact in zip(found, wanted) for key in numbers if key in exact)


def make_case(case, rows):
    exact = make_run(case, rows, torch.float64)
    errors = [error_of(make_run(case, rows, torch.float32, attention, pads), exact)
              for attention in ("eager", "sdpa") for pads in (False, True)]
    return dict(case, records=exact, error=max(errors))


def main():
    torch.set_num_threads(1)
    rows = make_rows()
    out = dict(num_trained=NUM_TRAINED, n_passages=NUM_PASSAGES, q_max_len=Q_MAX_LEN, p_max_len=P_MAX_LEN,
               query_prefix=QUERY_PREFIX, passage_prefix=PASSAGE_PREFIX,
               cases={name: make_case(case, rows) for name, case in CASES.items()})
    with open(os.path.join(DATA, "retrieval.json"), "w") as file:
        json.dump(out, file, indent=1)
        file.write("\n")
    for name, case in out["cases"].items():
        print(name, [round(record["loss"], 4) for record in case["records"]], case["error"])


if __name__ == "__main__":
    main()
