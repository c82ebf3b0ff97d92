#!/usr/bin/env python3
"""Makes tests/datasets/data/conversations.json: samples that AutoModel makes of conversations, xLAM's rows and
traces of agents.

Run by a python with nemo_automodel 0.7.0 (and torch, transformers 5.18, datasets):
  python scripts/goldens/make_conversation_goldens.py

Every case holds the dataset's name, a template, options and a row, and what AutoModel's own functions make of them with
the tokenizer beside the file: input_ids and labels, or loss_mask where the samples are not shifted.
"""

import json
import pathlib

import nemo_automodel
from nemo_automodel._transformers.tokenization.nemo_auto_tokenizer import NeMoAutoTokenizerWithBosEosEnforced
from nemo_automodel.components.datasets.llm import agent_chat, xlam
from nemo_automodel.components.datasets.llm.chat_dataset import _normalize_messages
from nemo_automodel.components.datasets.llm.formatting_utils import _add_pad_token, format_chat_template

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "datasets" / "data"

CALLS = (
    "{% for c in m.tool_calls or [] %}[{{ c.id }} {{ c.function.name }} "
    "{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}]{% endfor %}"
)
TOOLS = "{% if tools %}{{ tools | tojson }}\n{% endif %}"
TEMPLATES = {
    # The prompt of a turn depends on enable_thinking; turns without reasoning have an empty block.
    "thinking": TOOLS
    + "{% for m in messages %}<{{ m.role }}>\n{% if m.role == 'assistant' %}<think>{{ m.reasoning_content or '' }}"
    "</think>{% endif %}{{ m.content }}" + CALLS + "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}"
    "<assistant>\n{% if enable_thinking is defined and not enable_thinking %}<think></think>{% else %}<think>{% endif %}"
    "{% endif %}",
    # Only the last message is ended.
    "last_ends": "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ '\n' if not loop.last else eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}",
    # Every message is ended, and the prompt adds to that.
    "plain": TOOLS + "{% for m in messages %}({{ m.role }} {{ m.content }}" + CALLS + "{{ m.tool_call_id }})"
    "{% endfor %}{% if add_generation_prompt %}(assistant {% endif %}",
    "marked": TOOLS + "{% for m in messages %}({{ m.role }} {% if m.role == 'assistant' %}{% generation %}"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}" + CALLS + ")"
    "{{ eos_token }}{% endgeneration %}{% else %}{{ m.content }}){% endif %}{% endfor %}"
    "{% if add_generation_prompt %}(assistant {% endif %}",
    "no_system": "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}({{ m.role }} {{ m.content }}){% endfor %}",
    # The prompt writes what comes before it anew.
    "rewrites": "{% if add_generation_prompt %}!{% endif %}{% for m in messages %}({{ m.role }} {{ m.content }})"
    "{% endfor %}",
}

TURNS = [
    {"role": "user", "content": "I have 3 apples and eat 1."},
    {"role": "assistant", "content": "You have 2.", "reasoning_content": "3 - 1 = 2 apples"},
    {"role": "user", "content": "And 5 more?"},
    {"role": "assistant", "content": "You have 7 apples."},
]
SYSTEM = {"role": "system", "content": "You count apples."}
FUNCTION = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
XLAM = [
    {
        "id": 7,
        "query": "How warm is it in Köln?",
        "tools": json.dumps(
            [
                {
                    "name": "weather",
                    "description": "The weather of a place",
                    "parameters": {
                        "place": {"description": "Where", "type": "str"},
                        "unit": {"description": "C or F", "type": "str, optional", "default": "C", "enum": ["C", "F"]},
                        "days": {"type": "Int"},
                        "parts": {"description": "Which", "type": "List[str]"},
                        "none": None,
                    },
                },
                {"name": "now", "parameters": None},
            ]
        ),
        "answers": json.dumps([{"name": "weather", "arguments": {"place": "Köln", "days": 1}}, {"name": "now"}]),
    },
    {"query": "Hi", "tools": [], "answers": [{"name": "greet", "arguments": '{"x": [1, 2.5, null, true]}'}]},
]
TRACES = [
    {
        "id": "t1",
        "tools": json.dumps([FUNCTION]),
        "messages": [
            SYSTEM,
            {"role": "user", "content": "3 and 4, 5 and 6?"},
            {"role": "assistant", "content": "I add.", "reasoning_content": "Two sums."},
            {"role": "tool_call", "content": '{"name": "add", "arguments": {"a": 3, "b": 4}}'},
            {"role": "tool_call", "content": '{"name": "add", "arguments": "{\\"a\\": 5}"}'},
            {"role": "tool_response", "content": "7"},
            {"role": "tool_response", "content": {"sum": 11}},
            {"role": "tool_response", "content": "extra"},
            {"role": "assistant", "content": "7 and 11.", "reasoning_content": "Done."},
            {"role": "user", "content": "Thanks"},
        ],
    },
    {
        "conversations": [
            {"from": "human", "value": "Add 1 and 2"},
            {"from": "function_call", "value": '{"name": "add", "arguments": {"a": 1, "b": 2}}'},
            {"from": "observation", "value": "3"},
            {"from": "gpt", "value": "It is 3."},
            {"from": "human", "value": "And 4?"},
            {"from": "gpt", "value": "It is 7."},
        ],
        "tools": "",
    },
    {
        "messages": [
            {"role": "user", "content": "Look"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "own", "function": {"name": "look", "arguments": {"at": "x"}}},
                    {"function": {"name": "look", "arguments": '{"at": "y"}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "own", "content": "a", "name": "look"},
            {"role": "tool", "content": "b"},
            {"role": "assistant", "content": "a and b"},
        ]
    },
]


def make(dataset, tokenizer, template, row, options):
    tokenizer.chat_template = TEMPLATES[template]
    eos = tokenizer.eos_token_id
    pad = _add_pad_token(tokenizer) or eos
    arguments = {"padding": False, "truncation": "seq_length" in options, **options}
    if dataset == "xlam":
        sample = xlam._format_example(row, tokenizer, eos, pad, **arguments)
    elif dataset == "agent":
        sample = agent_chat._format_example_impl(row, tokenizer, eos, pad, **arguments)
    else:
        arguments["train_on_last_turn_only"] = arguments.pop("mask_history", False)
        messages = _normalize_messages(row["messages"])
        sample = format_chat_template(tokenizer, messages, eos, pad, tools=row.get("tools"), **arguments)
    case = {"dataset": dataset, "template": TEMPLATES[template], "options": options, "row": row}
    kinds = ("input_ids", "labels", "loss_mask")
    return case | {key: list(map(int, sample[key])) for key in kinds if key in sample}


def cases():
    masks = [
        {},
        {"mask_generation_prompt": True},
        {"mask_reasoning_content": True},
        {"mask_history": True, "mask_generation_prompt": True, "mask_reasoning_content": True},
        {"mask_generation_prompt": True, "mask_reasoning_content": True, "seq_length": 60},
        {"mask_history": True, "mask_generation_prompt": True, "seq_length": 48},
        {"unshifted": True, "mask_generation_prompt": True},
    ]
    for template in ("thinking", "last_ends", "plain", "marked", "rewrites"):
        for options in masks:
            yield "chat", template, {"messages": TURNS}, options
    for options in ({}, {"mask_generation_prompt": True}):
        yield "chat", "no_system", {"messages": [SYSTEM, *TURNS]}, options
        yield "chat", "marked", {"messages": [TURNS[1], *TURNS]}, options
    for template in ("plain", "marked", "thinking"):
        for row in XLAM:
            for options in ({}, {"seq_length": 512}):
                yield "xlam", template, row, options
    ways = [
        {},
        {"trim_incomplete_last_turn": True},
        {"trim_incomplete_last_turn": True, "drop_history_reasoning_content": True},
        {"train_on_last_turn_only": True, "mask_reasoning_content": True},
        {"mask_generation_prompt": True},
        *({"truncate_history": True, "seq_length": n, "truncation": False} for n in (40, 70, 110, 400)),
    ]
    for template in ("plain", "marked", "thinking"):
        for row in TRACES:
            for options in ways:
                yield "agent", template, row, options


def main():
    tokenizer = NeMoAutoTokenizerWithBosEosEnforced.from_pretrained(str(DATA / "tokenizer"))
    lines = []
    for dataset, template, row, options in cases():
        try:
            case = make(dataset, tokenizer, template, row, options)
        except (AssertionError, ValueError) as error:  # no message of the assistant is left
            print(f"left out: {template} {options}: {error}")
            continue
        if any(label != -100 for label in case.get("labels", [0])):
            lines.append(json.dumps(case, ensure_ascii=False))
    (DATA / "conversations.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{len(lines)} samples by AutoModel {nemo_automodel.__version__}")


if __name__ == "__main__":
    main()
