#!/usr/bin/env python3
"""Makes tests/chat/data/tool_calls.json: the tool calls that AutoModel finds in generated texts, and their scores; and
tests/datasets/data/tool_call_prompts.json: what it makes of traces of agents to generate such texts from.

Run by Python 3.11 with the folder that holds nemo_automodel 0.7.0; no other package is needed:
  python3 scripts/goldens/make_tool_call_goldens.py SITE_PACKAGES
  python3 scripts/goldens/make_tool_call_goldens.py SITE_PACKAGES --random 20000 --seed 1 --output FILE
The second makes texts by other random numbers, and writes them and nothing else.

A text's case holds the calls, with arguments as json.dumps writes them, what was expected as JSON text, and the
scores. A prompt's holds a row and its prompts, with calls' arguments as objects where AutoModel's are their JSON text.
Texts that AutoModel raises at (its reader's limits) are left out.
"""

import argparse
import importlib.util
import json
import pathlib
import random
import sys
import types

TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests"
LLM = "nemo_automodel.components.datasets"


def load(site_packages, path):
    """A module of AutoModel, without the packages around it."""
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, site_packages / "nemo_automodel" / path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def stand_in(name, *members):
    """A module that is imported from, but whose members are not called here."""
    module = types.ModuleType(name)
    for member in members:
        setattr(module, member, None)
    sys.modules[name] = module


CALL = '{"name": "add", "arguments": {"a": 1, "b": 2}}'
NESTED = '{"name": "find", "arguments": {"query": {"all": [{"key": "x}"}, "{\\"y"]}, "most": 3.0}}'
TEXT_ARGUMENTS = '{"name": "add", "arguments": "{\\"a\\": 1, \\"b\\": 2}"}'
LLAMA = '{"name": "add", "parameters": {"a": 1, "b": 2}}'


def in_qwen(*calls):
    return "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls)


def in_llama(*calls):
    return "".join(f"<|python_tag|>{call}<|eom_id|>" for call in calls)


def in_mistral(*calls):
    return f"[TOOL_CALLS][{', '.join(calls)}]"


def in_harmony(name, arguments, between=" <|constrain|>json"):
    between = between.replace("<|constrain|>", "")
    return f"<|channel|>commentary to=functions.{name}{between}<|message|>{arguments}<|call|>"


TEXTS = [
    "",
    " ",
    "No call is needed.",
    "Braces { and } and {} alone",
    in_qwen(CALL),
    in_qwen(CALL, NESTED),
    "I add.\n" + in_qwen(CALL) + " Done.",
    in_qwen(f"[{CALL}, {NESTED}]"),
    in_qwen(f"[{CALL}, 3, null, {{}}]"),
    in_qwen("3"),
    in_qwen('"add"'),
    in_qwen("[]"),
    in_qwen("{}"),
    in_qwen("{}") + CALL,
    in_qwen("{}") + in_llama(LLAMA),
    in_qwen(TEXT_ARGUMENTS),
    in_qwen('{"name": "add", "arguments": "{broken"}'),
    in_qwen('{"name": "add", "arguments": "[1]"}'),
    in_qwen('{"name": "add", "arguments": ""}'),
    in_qwen('{"name": "add", "arguments": null}'),
    in_qwen('{"name": "add", "arguments": [1]}'),
    in_qwen('{"name": "add", "arguments": 3}'),
    in_qwen('{"name": "add"}'),
    in_qwen('{"name": "add", "parameters": {"a": 1}}'),
    in_qwen('{"name": "add", "arguments": {"a": 1}, "parameters": {"b": 1}}'),
    in_qwen('{"name": "add", "arguments": null, "parameters": {"b": 1}}'),
    in_qwen('{"name": "", "arguments": {}}'),
    in_qwen('{"name": 3, "arguments": {}}'),
    in_qwen('{"name": null, "arguments": {}}'),
    in_qwen('{"arguments": {"a": 1}}'),
    in_qwen('{"name": "add", "arguments": {"a": 1,}}'),
    in_qwen("{'name': 'add', 'arguments': {}}"),
    in_qwen('{"name": "add", "arguments": {"a": 1}'),
    in_qwen("{\"name\": \"add\", \"arguments\": {\"a\": \"line\nend\"}}"),
    in_qwen("{\"name\": \"add\", \"arguments\": {\"a\": \"\x7f\u2028\"}}"),
    in_qwen("\ufeff" + CALL),
    in_qwen("\u3000" + CALL + "\u00a0\x1f"),
    in_qwen("\u200b" + CALL),
    in_qwen('{"name": "a", "name": "add", "arguments": {"a": 0, "b": 2, "a": 1}}'),
    in_qwen('{"name": "add", "arguments": {"a": NaN, "b": -Infinity, "c": Infinity}}'),
    in_qwen('{"name": "add", "arguments": {"a": -NaN}}'),
    in_qwen('{"name": "add", "arguments": {"a": 1e999, "b": -1e999, "c": 1e-999, "d": 5e-324}}'),
    in_qwen('{"name": "add", "arguments": {"a": 18446744073709551616, "b": -9223372036854775808, "c": -0, "d": -0.0}}'),
    in_qwen('{"name": "add", "arguments": {"a": 01}}'),
    in_qwen('{"name": "add", "arguments": {"a": 1.}}'),
    in_qwen('{"name": "add", "arguments": {"a": .5}}'),
    in_qwen('{"name": "add", "arguments": {"a": +1}}'),
    in_qwen('{"name": "add", "arguments": {"a": 1E+2, "b": 2e0}}'),
    in_qwen('{"name": "add", "arguments": {"a": "\\ud83d\\ude00", "b": "\\u00e9\\/\\b"}}'),
    in_qwen('{"name": "add", "arguments": {"a": "\\ud800", "b": "\\udc00\\ud800", "c": "\\ud800\\u0041"}}'),
    in_qwen('{"name": "add", "arguments": {"a": "\\u12"}}'),
    in_qwen('{"name": "add", "arguments": {"a": "\\x41"}}'),
    in_qwen('{"name": "add", "arguments": {"a": "\\u+123"}}'),
    in_qwen('{"name": "add", "arguments": {"__float__": "NaN"}}'),
    in_qwen('{"name": "añadir", "arguments": {"ключ": "значение", "数": "😀"}}'),
    in_qwen(CALL + CALL),
    in_qwen(CALL) + "</tool_call>",
    "<tool_call>" + CALL,
    "<tool_call>" + CALL + "</tool_call",
    "<tool_call></tool_call>",
    "<tool_call> </tool_call>",
    "<tool_call>   </tool_call>",
    "<tool_call>\u3000\u3000</tool_call>" + CALL,
    "<tool_call>x</tool_call>",
    "<tool_call>é </tool_call>",
    "<tool_call></tool_call>" + in_qwen(CALL),
    "<tool_call> </tool_call>" + in_qwen(CALL),
    "<tool_call></tool_call></tool_call>",
    "<tool_call><tool_call>" + CALL + "</tool_call></tool_call>",
    "<tool_call>   ",
    in_qwen('{"name": "say", "arguments": {"text": "</tool_call>"}}'),
    in_llama(LLAMA),
    in_llama(LLAMA, LLAMA),
    in_llama(CALL),
    in_llama(NESTED),
    in_llama('{"name": "add", "parameters": "{}"}'),
    "<|python_tag|>" + LLAMA,
    "<|python_tag|> \n\u2003" + LLAMA,
    "<|python_tag|>x" + LLAMA,
    "<|python_tag|>[" + LLAMA + "]",
    "<|python_tag|>{'name': 1}" + in_llama(LLAMA),
    "<|python_tag|>{\"a\": {" + in_llama(LLAMA),
    '<|python_tag|>{"a": "' + in_llama(LLAMA),
    '<|python_tag|>{"a": "<|python_tag|>{}"}',
    '<|python_tag|>{"name": "a", "parameters": {"b": "<|python_tag|>{\\"c\\": 1}"}}',
    '<|python_tag|>{"name": "a", "parameters": {"b": "\\\\"}} "}',
    "<|python_tag|>{}",
    in_mistral(CALL),
    in_mistral(CALL, NESTED, TEXT_ARGUMENTS),
    in_mistral("1", CALL, "[]", "{}"),
    in_mistral(CALL)[:-1],
    in_mistral("{'name': 'add'}"),
    in_mistral("]", CALL),
    in_mistral(CALL) + in_mistral(NESTED),
    "[TOOL_CALLS] " + CALL,
    "[TOOL_CALLS]\t[" + CALL + "]",
    "[TOOL_CALLS][{'broken': 1}]" + CALL,
    '[TOOL_CALLS][{"name": "a", "arguments": {"x": "]", "y": [[1], "["]}}]',
    in_harmony("add", '{"a": 1, "b": 2}'),
    in_harmony("add", '{"a": {"b": {"c": "}"}}}', ""),
    in_harmony("add", '{"a": 1'),
    in_harmony("add", "{'a': 1}"),
    in_harmony("add", "[1]"),
    in_harmony("add", ""),
    in_harmony("add-two_3", "{}"),
    in_harmony("añadir٣", "{}"),
    in_harmony("add.more", '{"a": 1}'),
    in_harmony("", "{}"),
    in_harmony(" add", "{}"),
    in_harmony("add", "{}", "<|constrain|>json"),
    in_harmony("add", "{}") + in_harmony("find", '{"x": 1}'),
    "<|channel|> \ncommentary\u3000to=functions.add<|message|>\n {}",
    "<|channel|>commentaryto=functions.add<|message|>{}",
    "<|channel|>analysis<|message|>I add.<|end|>" + in_harmony("add", "{}"),
    "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{}",
    "<|channel|>commentary to=functions.add<|channel|>commentary to=functions.find<|message|>{}",
    in_harmony("add", "{'a'}") + in_qwen(CALL),
    in_harmony("add", "none") + in_qwen(CALL),
    in_qwen(CALL) + in_harmony("find", "{}"),
    in_llama(LLAMA) + in_qwen("broken"),
    in_mistral(CALL) + in_llama("{broken}"),
    CALL,
    "Call: " + NESTED + " and " + LLAMA,
    f"[{CALL}, {NESTED}]",
    '{"call": ' + CALL + "}",
    'He said "' + CALL,
    'He said "yes" and ' + CALL,
    "It's {broken} and " + CALL,
    "} } " + CALL,
    "{ " + CALL,
    '{"name": "add", "arguments": {broken}} ' + LLAMA,
    '{"names": "add"}',
    '\\"' + CALL + '"',
    "```json\n" + CALL + "\n```",
]

EXPECTED = [
    [{"name": "add", "arguments": {"a": 1, "b": 2}}],
    [{"name": "add", "arguments": {"b": 2.0, "a": True}}],
    [{"name": "add", "arguments": '{"a": 1, "b": 2}'}, {"name": "find", "arguments": {"most": 3}}],
    [
        {"name": "add", "arguments": {"a": 1, "b": 2}},
        {"name": "find", "arguments": {"query": {"all": [{"key": "x}"}, '{"y']}, "most": 3}},
    ],
    [{"name": "add", "arguments": {}}],
    [{"name": "add"}],
    [{"name": None, "arguments": "broken"}],
    [{"arguments": {"c": 1, "a": 1}}],
    [{"name": 3, "arguments": [1]}],
    [{"name": "find", "arguments": None}] * 3,
    [],
    [{"name": "add", "arguments": {"a": float("nan"), "b": float("-inf"), "c": float("inf")}}],
    [{"name": "add", "arguments": {"a": "x", "b": 2, "c": 3}}],
]

# Arguments in pairs of which some are equal to Python.
VALUES = [
    "0", "-0.0", "false", "1", "1.0", "true", '"1"', "null", "[]", "{}", "[1]", "[true]", "[1, 2]", "[2, 1]",
    '{"x": 1}', '{"x": 1.0, "y": 2}', '{"y": 2, "x": true}', "9007199254740993", "9007199254740992.0",
    "9007199254740992", "-9223372036854775809", "-9223372036854775808", "9223372036854775807",
    "9223372036854775808.0", "18446744073709551616", "18446744073709551616.0", "NaN", "Infinity",
    "[NaN]", '""', '"é"', '"\\u00e9"', '{"x": null}', "1e0", "0.1",
]  # fmt: skip
PIECES = [
    "<tool_call>", "</tool_call>", "<|python_tag|>", "<|eom_id|>", "[TOOL_CALLS]", "<|message|>",
    "<|channel|>commentary to=functions.", "{", "}", "[", "]", '"', "\\", '\\"', ":", ",", " ", "\n", "\u3000", "\x1f",
    "\ufeff", "é", "1", "-", ".", "e", "null", "NaN", "Infinity", '"name": ', '"arguments": ', '"parameters": ', "{}",
    "\\ud800", "\\udc00", "\\u00e9", CALL, LLAMA, TEXT_ARGUMENTS, '"a": 1', "'", "\x00", "<", "😀",
]  # fmt: skip


def mutated(rng):
    text = rng.choice(TEXTS)
    if rng.random() < 0.3:
        text += rng.choice(["", " ", "\n"]) + rng.choice(TEXTS)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3, 8])):
        begin = rng.randrange(len(text) + 1)
        end = min(len(text), begin + rng.choice([0, 0, 1, 1, 2, 10]))
        middle = rng.choice(PIECES) if rng.random() < 0.7 else ""
        if rng.random() < 0.1:  # something from elsewhere in the text
            place = rng.randrange(len(text) + 1)
            middle = text[place : place + rng.randrange(40)]
        text = text[:begin] + middle + text[end:]
    return text


def expected_of(rng, calls):
    """What was expected: something fixed, or what was found with changes."""
    if not calls or rng.random() < 0.3:
        return rng.choice(EXPECTED)
    out = []
    for call in calls:
        arguments = dict(call.arguments)
        for key in list(arguments):
            if rng.random() < 0.2:
                del arguments[key]
        if rng.random() < 0.3:
            arguments["new"] = 1
        name = call.name if rng.random() < 0.8 else "other"
        out.append({"name": name, "arguments": arguments if rng.random() < 0.7 else json.dumps(arguments)})
    return out if rng.random() < 0.7 else out + [EXPECTED[0][0]] if rng.random() < 0.5 else out[:-1]


def as_utf8(text):
    """A text with half of a surrogate pair as a program shows it that has UTF-8 only."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def case_of(parser, text, expected):
    calls = parser.parse_tool_calls(text)
    expected = json.dumps(expected)
    scores = parser.compute_sample_metrics(calls, json.loads(expected))
    found = []
    for call in calls:
        name = call.name and as_utf8(call.name)
        arguments = as_utf8(json.dumps(call.arguments, ensure_ascii=False))
        found.append({"name": name, "arguments": arguments, "is_valid": call.arguments_valid_json})
    return {"text": text, "calls": found, "expected": expected, "scores": scores}


def text_cases(parser):
    for number, text in enumerate(TEXTS):
        for expected in (EXPECTED[0], EXPECTED[number % len(EXPECTED)]):
            yield case_of(parser, text, expected)
    for text in (in_qwen(CALL, NESTED), in_qwen("broken"), in_mistral(TEXT_ARGUMENTS, CALL)):
        for expected in EXPECTED:
            yield case_of(parser, text, expected)
    for number, value in enumerate(VALUES):
        for other in VALUES[: number + 1]:
            text = in_qwen(f'{{"name": "f", "arguments": {{"v": {value}}}}}')
            case = case_of(parser, text, [{"name": "f", "arguments": f'{{"v": {other}}}'}])
            if case["scores"]["args_exact_match"] == 1 or (number + len(other)) % 4 == 0:
                yield case


def random_cases(parser, count, seed):
    rng = random.Random(seed)
    while count > 0:
        text = mutated(rng)
        try:
            case = case_of(parser, text, expected_of(rng, parser.parse_tool_calls(text)))
        except (ValueError, RecursionError):  # its reader's limits
            continue
        count -= 1
        yield case


ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def own_call(arguments, **members):
    return {"function": {"name": "add", "arguments": arguments}, **members}


ROWS = [
    {
        "id": "t1",
        "tools": json.dumps([ADD]),
        "messages": [
            {"role": "system", "content": "You add."},
            {"role": "user", "content": "3 and 4, 5 and 6?"},
            {"role": "assistant", "content": "I add.", "reasoning_content": "Two sums."},
            {"role": "tool_call", "content": '{"name": "add", "arguments": {"a": 3, "b": 4}}'},
            {"role": "tool_call", "content": '{"name": "add", "arguments": "{\\"a\\": 5}"}'},
            {"role": "tool_response", "content": "7"},
            {"role": "tool_response", "content": {"sum": 11}},
            {"role": "tool_call", "content": {"name": "say", "arguments": {"text": "ü"}}},
            {"role": "tool_response", "content": "said"},
            {"role": "assistant", "content": "7 and 11."},
            {"role": "user", "content": "Thanks"},
            {"role": "tool_call", "content": '{"name": "end"}'},
        ],
    },
    {
        "conversations": [
            {"from": "human", "value": "Add 1 and 2"},
            {"from": "function_call", "value": '{"name": "add", "arguments": {"a": 1, "b": 2}}'},
            {"from": "observation", "value": "3"},
            {"from": "gpt", "value": "It is 3."},
            {"from": "human", "value": "And 4?"},
            {"from": "gpt", "value": "I add.", "reasoning_content": "3 + 4"},
            {"from": "function_call", "value": '{"name": "add", "arguments": {"a": 3, "b": 4}}'},
        ],
        "tools": "",
    },
    {
        "tools": [ADD],
        "messages": [
            {"role": "user", "content": "Look"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [own_call({"at": "x"}, id="own"), own_call('{"at": [1, 2.5, null]}')],
            },
            {"role": "tool", "tool_call_id": "own", "content": "a", "name": "look"},
            {"role": "tool", "content": "b"},
            {"role": "assistant", "content": "a and b", "tool_calls": []},
            {"role": "assistant", "content": "More", "tool_calls": [own_call("")]},
            {"role": "tool", "content": "c"},
            {"role": "assistant", "content": "", "tool_calls": [own_call("[1]"), own_call(5), own_call(None)]},
            {"role": "assistant", "tool_calls": [own_call("  "), own_call('"x"'), {"function": {"name": "f"}}]},
        ],
    },
    {"tools": [], "messages": [{"role": "tool_call", "content": '{"name": "first", "arguments": {}}'}]},
    {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]},
    {"messages": [{"role": "user", "content": "Hi", "tool_calls": [own_call("{}")]}, {"role": "tool", "content": "x"}]},
]


def with_objects(messages):
    """Messages whose calls have their arguments as values, not as JSON text."""
    for message in messages:
        for call in message.get("tool_calls", []):
            arguments = call["function"]["arguments"]
            call["function"]["arguments"] = json.loads(arguments) if arguments.strip() else arguments
    return messages


def prompt_cases(agent_chat):
    for row in ROWS:
        prompts = [
            {
                "messages": with_objects(json.loads(json.dumps(sample["prompt_messages"]))),
                "tools": sample["tools"],
                "calls": sample["gt_tool_calls"],
                "turn": sample["turn_index"],
            }
            for sample in agent_chat._extract_eval_samples_from_example(row)
        ]
        yield {"row": row, "prompts": prompts}


def write(path, cases):
    lines = [json.dumps(case, ensure_ascii=False) for case in cases]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{path}: {len(lines)} cases")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("site_packages", type=pathlib.Path)
    options.add_argument("--random", type=int)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--output", type=pathlib.Path)
    given = options.parse_args()
    parser = load(given.site_packages, "components/eval/tool_call_parser.py")
    if given.random:
        write(given.output, random_cases(parser, given.random, given.seed))
        return
    stand_in("datasets", "load_dataset")
    stand_in(f"{LLM}.lazy_mapped_dataset", "LazyMappedDataset")
    stand_in(f"{LLM}.llm.formatting_utils", "_add_pad_token", "_resolve_chat_template", "format_chat_template")
    agent_chat = load(given.site_packages, "components/datasets/llm/agent_chat.py")
    write(TESTS / "chat" / "data" / "tool_calls.json", [*text_cases(parser), *random_cases(parser, 300, 0)])
    write(TESTS / "datasets" / "data" / "tool_call_prompts.json", prompt_cases(agent_chat))


if __name__ == "__main__":
    main()
