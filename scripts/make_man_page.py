#!/usr/bin/env python3
"""Writes docs/automodel.1, the manual page, from the description of the program's commands.

usage: make_man_page.py [--check]

schemas/commands.json is what `automodel completion json` prints. --check writes nothing: exit status 1
when the page is not what the description gives.
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMANDS = ROOT / "schemas" / "commands.json"
PAGE = ROOT / "docs" / "automodel.1"


def roff(text):
    """A text without anything that roff reads as a request or an escape."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in text.split("\n"))


def as_written(text):
    """Lines as they are."""
    return f".nf\n{roff(text.strip(chr(10)))}\n.fi\n"


def value_of(option):
    """The value that an option takes, in words."""
    if option["choices"]:
        return "|".join(option["choices"])
    return option["type"] or "VALUE"


def signature(option):
    """An option as one writes it."""
    if option["positional"]:
        name = f"\\fI{roff(option['positional'])}\\fR"
        if option["names"]:
            return f"{name}, " + signature({**option, "positional": ""})
        return name
    names = ", ".join(f"\\fB{roff(name)}\\fR" for name in option["names"])
    return names + (f" \\fI{roff(value_of(option))}\\fR" if option["takes_value"] else "")


def option_lines(option):
    text = option["text"]
    if option["positional"] and option["choices"]:
        text += f" ({', '.join(option['choices'])})"
    return f".TP\n{signature(option)}\n{roff(text)}\n"


def command_lines(command):
    words = [f"\\fI{roff(option['positional'])}\\fR" for option in command["options"] if option["positional"]]
    lines = f".SS automodel {command['name']} {' '.join(words)}\n{roff(command['purpose'])}\n"
    lines += "".join(option_lines(option) for option in command["options"])
    if command["footer"].strip():
        lines += ".PP\n" + as_written(command["footer"])
    return lines


def version():
    return re.search(r"project\(automodel VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


def page(described):
    first, _, rest = described["description"].partition("\n")
    text = '.\\" Made by scripts/make_man_page.py from schemas/commands.json.\n'
    text += f'.TH AUTOMODEL 1 "" "automodel {version()}" "User Commands"\n'
    text += ".SH NAME\nautomodel \\- trains Hugging Face models from YAML recipes\n"
    text += ".SH SYNOPSIS\n\\fBautomodel\\fR \\fICOMMAND\\fR [\\fIARGUMENT\\fR]...\n.br\n"
    text += "\\fBautomodel\\fR \\fIRECIPE.yaml\\fR [\\fIARGUMENT\\fR]...\n"
    text += f".SH DESCRIPTION\n{roff(first)}\n.PP\n{as_written(rest)}"
    text += ".SH COMMANDS\n" + "".join(command_lines(command) for command in described["commands"])
    return text + f".SH EXIT STATUS\n{as_written(described['footer'].replace('Exit status: ', '', 1))}"


def main():
    made = page(json.loads(COMMANDS.read_text()))
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(made)
    elif not PAGE.exists() or PAGE.read_text() != made:
        sys.exit(f"{PAGE.relative_to(ROOT)} is not what schemas/commands.json gives: run scripts/make_man_page.py")


if __name__ == "__main__":
    main()
