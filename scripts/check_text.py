"""Checks what the compiler does not see. usage: check_text.py [root]

Headers start with #pragma once, nobody includes torch/torch.h, no file is called util, helper,
common, manager or misc, every script is valid Python; files over 600 lines are named (a warning).
Prints file:line: what is wrong; exit status 1 when anything is.
"""

import pathlib
import re
import sys

MAX_LINES = 600
VAGUE = re.compile(r"(^|_)(utils?|helpers?|commons?|managers?|misc)(_|\.|$)")
VAGUE_TYPE = re.compile(r"^\s*(class|struct)\s+(\w*(Util|Helper|Manager|Misc)s?)\b[^;]*$")


def check_source(path, text):
    """(problems, warnings) of one C++ file."""
    problems, warnings = [], []
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if re.match(r"\s*#\s*include\s*<torch/torch\.h>", line):
            problems.append(f"{path}:{number}: <torch/torch.h> costs half a minute; include what is used")
        match = VAGUE_TYPE.match(line)
        if match:
            problems.append(f"{path}:{number}: {match.group(2)} says nothing; name what it does")
    if path.suffix in (".h", ".cuh") and "#pragma once" not in text:
        problems.append(f"{path}:1: no #pragma once")
    if len(lines) > MAX_LINES:
        warnings.append(f"{path}:{MAX_LINES}: warning: {len(lines)} lines, over {MAX_LINES}")
    return problems, warnings


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    problems, warnings = [], []
    for folder in ("src", "tests", "examples", "fuzz", "scripts", "cmake"):
        for path in sorted((root / folder).rglob("*")):
            if not path.is_file():
                continue
            if VAGUE.search(path.name):
                problems.append(f"{path}:1: the name says nothing; name what it holds")
            if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
                found = check_source(path, path.read_text(errors="replace"))
                problems += found[0]
                warnings += found[1]
            elif path.suffix == ".py":
                try:
                    compile(path.read_text(), str(path), "exec")
                except SyntaxError as error:
                    problems.append(f"{path}:{error.lineno}: {error.msg}")
    for line in warnings + problems:
        print(line)
    if problems:
        sys.exit(1)


if __name__ == "__main__":
    main()
