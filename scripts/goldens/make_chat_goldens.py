#!/usr/bin/env python3
"""Makes tests/chat/data/cases.jsonl: what transformers renders of the templates, snippets and conversations beside it; and
tests/datasets/data/chat.json: samples of conversations that its apply_chat_template tokenizes and masks.

Run by the python that scripts/setup_peers.sh prints (transformers 5, jinja2 3.1):
  python scripts/goldens/make_chat_goldens.py
  python scripts/goldens/make_chat_goldens.py --mutate 1000 [--seed 0] [--templates DIR] --program build/release/automodel
  python scripts/goldens/make_chat_goldens.py --speed --program build/release/automodel
The third compares the time of a rendering, both programs with a template that they have read before. The second makes no file: it changes templates at random, renders each with both programs and says where ours does
anything but what jinja2 does, or refuse. Exit status 1 then.
"""

import argparse
import json
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

import jinja2
import transformers
from transformers.utils import chat_template_utils

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "chat" / "data"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
PIECES = (
    "- + {{ }} {% %} {# #} if else endif for endfor in not and or is defined none true ( ) [ ] | ~ : . ' \" 0 1 -1 messages "
    "loop set = == * % / // ** < >= tojson trim length list string namespace x message upper first last map select content "
    "() [0] [1:] [::-1] .role loop.index"
).split() + ["{% break %}", "{% continue %}", "{% generation %}", "{% endgeneration %}", "\n", " "]


def variables_of(conversation):
    values = {"messages": None, "tools": None, "documents": None, "add_generation_prompt": False, **TOKENS}
    values.update({key: value for key, value in conversation.items() if key != "name"})
    return values


def render(template, variables):
    """What transformers' own functions make of it."""
    values = json.loads(json.dumps(variables))
    positional = [values.pop(key) for key in ("messages", "tools", "documents", "add_generation_prompt")]
    try:
        compiled = chat_template_utils._cached_compile_jinja_template(template)
        text, spans = chat_template_utils._render_with_assistant_indices(compiled, *positional, **values)
        return {"rendered": text, "generation": [list(span) for span in spans]}
    except Exception as error:  # templates fail in every way that Python knows
        return {"error": str(error), "raised": type(error) is jinja2.exceptions.TemplateError}


def read_conversations():
    return [json.loads(line) for line in (DATA / "conversations.jsonl").read_text().splitlines()]


def read_templates(folder):
    return {path.stem: path.read_text() for path in sorted(folder.rglob("*.jinja"))}


def make():
    cases = []
    conversations = read_conversations()
    for name, template in read_templates(DATA / "templates").items():
        for conversation in conversations:
            variables = variables_of(conversation)
            cases.append({"template": name, "variables": variables, **render(template, variables)})
    for snippet in (DATA / "snippets.txt").read_text().rstrip("\n").split("\n=====\n"):
        variables = variables_of(conversations[1])
        cases.append({"text": snippet, "variables": variables, **render(snippet, variables)})
    (DATA / "cases.jsonl").write_text("".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases))
    print(f"{len(cases)} cases by transformers {transformers.__version__}, jinja2 {jinja2.__version__}")


PLAIN = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
MARKED = (
    "{{ bos_token }}{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}:"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}"
    "{% else %} {{ m.content }}{% endif %}{% endfor %}"
)


def sample(tokenizer, template, row, mask_history, seq_length):
    """Input ids and shifted labels of one conversation; the assistant's tokens count."""
    messages, tools = row["messages"], row.get("tools")

    def apply(count, **options):
        return tokenizer.apply_chat_template(
            messages[:count], tools=tools, chat_template=template, tokenize=True, return_dict=True, **options
        )

    if "generation" in template:
        encoded = apply(len(messages), return_assistant_tokens_mask=True)
        ids, counts = encoded["input_ids"], list(encoded["assistant_masks"])
    else:
        ids = apply(len(messages))["input_ids"]
        counts = [0] * len(ids)
        for place, message in enumerate(messages):
            if message["role"] == "assistant":
                begin = len(apply(place)["input_ids"]) if place else 0
                end = len(apply(place + 1)["input_ids"])
                counts[begin:end] = [1] * (end - begin)
    if mask_history:
        end = max(place for place, count in enumerate(counts) if count) + 1
        begin = max([place + 1 for place in range(end) if not counts[place]], default=0)
        counts = [int(begin <= place < end) for place in range(len(counts))]
    if seq_length:
        ids, counts = ids[:seq_length], counts[:seq_length]
    labels = [token if count else -100 for token, count in zip(ids, counts)]
    return {"input_ids": ids[:-1], "labels": labels[1:]}


def make_samples():
    folder = ROOT / "tests" / "datasets" / "data"
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder / "tokenizer")
    rows = [
        {"messages": [{"role": "user", "content": "Grüße 🌍"}, {"role": "assistant", "content": "¡Hola! 🎉"}]},
        {
            "messages": [
                {"role": "system", "content": "You count apples."},
                {"role": "user", "content": "I have 3 and eat 1."},
                {"role": "assistant", "content": "You have 2 apples."},
                {"role": "user", "content": "And 5 more?"},
                {"role": "assistant", "content": " 7\n"},
            ],
            "tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}],
        },
        {"messages": [{"role": "assistant", "content": "First"}, {"role": "user", "content": "x"}]},
    ]
    samples = [
        {
            "template": template,
            "row": row,
            "mask_history": mask_history,
            "seq_length": seq_length,
            **sample(tokenizer, template, row, mask_history, seq_length),
        }
        for template in (PLAIN, MARKED)
        for row in rows
        for mask_history in (False, True)
        for seq_length in (None, 40)
    ]
    samples = [entry for entry in samples if set(entry["labels"]) != {-100}]
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in samples)
    (folder / "chat.json").write_text(f"[\n{lines}\n]\n")
    print(f"{len(samples)} samples")


def mutated(rng, template):
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at, way = rng.randrange(len(template) + 1), rng.random()
        if way < 0.35:
            template = template[:at] + rng.choice(PIECES) + template[at:]
        elif way < 0.6:
            template = template[:at] + template[at + rng.choice([1, 1, 2, 5, 10]) :]
        elif way < 0.8:
            other, size = rng.randrange(len(template) + 1), rng.choice([3, 8, 20])
            template = template[:at] + template[other : other + size] + template[at + rng.choice([0, size]) :]
        else:
            words = list(re.finditer(r"\w+|[^\w\s]", template))
            if words:
                word = rng.choice(words)
                template = template[: word.start()] + rng.choice(PIECES) + template[word.end() :]
    return template


def on_alarm(*_):
    raise TimeoutError("the peer takes too long")


def mutate(options):
    rng = random.Random(options.seed)
    templates = list(read_templates(options.templates).values())
    conversations = read_conversations()
    process = subprocess.Popen(
        [options.program, "render-chat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    signal.signal(signal.SIGALRM, on_alarm)
    counts = {"equal": 0, "refused by both": 0, "refused": 0, "different": 0}
    for _ in range(options.mutate):
        template, variables = mutated(rng, rng.choice(templates)), variables_of(rng.choice(conversations))
        signal.setitimer(signal.ITIMER_REAL, 5)
        peer = render(template, variables)
        signal.setitimer(signal.ITIMER_REAL, 0)
        process.stdin.write(json.dumps({"template": template, "kwargs": variables}) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            sys.exit(f"the program ended on {template!r} with {variables}")
        ours = json.loads(answer)
        both = [ours.get(key) == peer.get(key) for key in ("rendered", "generation")]
        if "error" in ours:
            kind = "refused by both" if "error" in peer else "refused"
        else:
            kind = "equal" if all(both) or "takes too long" in peer.get("error", "") else "different"
        counts[kind] += 1
        if kind in ("different", "refused"):
            print(f"{template!r}\n  peer: {peer}\n  ours: {ours}")
    print(counts)
    sys.exit(1 if counts["different"] else 0)


def speed(options):
    turns = [{"role": role, "content": "Rhyme with cat. " * 8} for _ in range(3) for role in ("user", "assistant")]
    variables = variables_of({"messages": [{"role": "system", "content": "You are a poet."}, *turns]})
    ratios = []
    for name, template in read_templates(options.templates).items():
        if "error" in render(template, variables):
            continue
        values = {key: value for key, value in variables.items() if key != "messages"}
        best = []
        for _ in range(5):
            begin = time.perf_counter()
            for _ in range(200):
                chat_template_utils.render_jinja_template([variables["messages"]], chat_template=template, **values)
            best.append((time.perf_counter() - begin) / 200)
        line = json.dumps({"template": template, "kwargs": variables}) + "\n"
        command = [options.program, "render-chat", "--repeat", "2000"]
        answers = subprocess.run(command, input=line * 5, capture_output=True, text=True, check=True).stdout
        ours = min(json.loads(answer)["seconds"] for answer in answers.splitlines())
        ratios.append(min(best) / ours)
        print(f"{name}: transformers {min(best) * 1e6:.1f} us, ours {ours * 1e6:.2f} us, {ratios[-1]:.1f} times")
    print(f"{len(ratios)} templates: {min(ratios):.1f} to {max(ratios):.1f} times")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutate", type=int, metavar="COUNT")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--templates", type=pathlib.Path, default=DATA / "templates")
    parser.add_argument("--program")
    parser.add_argument("--speed", action="store_true")
    options = parser.parse_args()
    if options.mutate:
        mutate(options)
    if options.speed:
        return speed(options)
    make()
    make_samples()


if __name__ == "__main__":
    main()
