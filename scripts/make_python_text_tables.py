#!/usr/bin/env python3
"""Makes src/chat/case_tables.cpp: characters as Python's str methods class and change them.

Run with Python 3.11 (Unicode 14):
  python scripts/make_python_text_tables.py
"""

import pathlib
import unicodedata

from character_ranges import ranges

OUT = pathlib.Path(__file__).resolve().parent.parent / "src" / "chat" / "case_tables.cpp"
CHARACTERS = [c for c in range(0x80, 0x110000) if not 0xD800 <= c < 0xE000]

CLASSES = {
    "kAlpha": str.isalpha,
    "kDecimal": str.isdecimal,
    "kDigit": str.isdigit,
    "kNumeric": str.isnumeric,
    "kSpace": str.isspace,
    "kPrintable": str.isprintable,
    "kLower": str.islower,
    "kUpper": str.isupper,
    "kTitle": lambda c: unicodedata.category(c) == "Lt",
    # What a final sigma looks through: "a" + c + sigma is lowered to a final sigma only then.
    "kCaseIgnorable": lambda c: ("aΣ" + c + "Σ").lower()[1] == "σ" and not (c.islower() or c.isupper() or c.istitle())
    and ("a" + c + "Σ").lower().endswith("ς"),
}
MAPS = {"kToLower": str.lower, "kToUpper": str.upper, "kToTitle": str.title, "kFold": str.casefold}


def write_list(lines, items):
    line = " "
    for item in items:
        if len(line) + len(item) + 2 > 100:
            lines.append(line)
            line = " "
        line += f" {item},"
    lines.append(line)


def main():
    lines = [
        f"// Made by scripts/make_python_text_tables.py with Unicode {unicodedata.unidata_version}.",
        '#include "chat/case_tables.h"',
        "",
        "namespace automodel::chat::tables {",
        "",
        "namespace {",
        "// clang-format off",
    ]
    for name, test in CLASSES.items():
        lines.append(f"constexpr CharacterRange {name}Ranges[] = {{")
        found = ranges(c for c in CHARACTERS if test(chr(c)))
        write_list(lines, [f"{{{first:#X}, {last:#X}}}".replace("0X", "0x") for first, last in found])
        lines.append("};")
    for name, change in MAPS.items():
        lines.append(f"constexpr CaseMapping {name}Mappings[] = {{")
        items = []
        for c in CHARACTERS:
            changed = change(chr(c))
            if changed != chr(c):
                to = [ord(x) for x in changed] + [0, 0]
                items.append(f"{{{c:#X}, {{{to[0]:#X}, {to[1]:#X}, {to[2]:#X}}}}}".replace("0X", "0x"))
        write_list(lines, items)
        lines.append("};")
    lines += ["// clang-format on", "}  // namespace", ""]
    lines += [f"const std::span<const CharacterRange> {name} = {name}Ranges;" for name in CLASSES]
    lines += [f"const std::span<const CaseMapping> {name} = {name}Mappings;" for name in MAPS]
    lines += ["", "}  // namespace automodel::chat::tables", ""]
    OUT.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
