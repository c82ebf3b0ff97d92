#!/usr/bin/env python3
"""Writes tests/config/data/scalars.json: what a scalar of a recipe means.

Every text is read as a plain YAML value, as a quoted one and as the value of an override: by
PyYAML's safe_load (not for overrides), then by upstream's translation of strings, restated below
with ast.literal_eval. Made with PyYAML 6.0.3 and Python 3.11 or newer.
"""

import ast
import datetime
import json
import pathlib
import sys
import warnings

import yaml

warnings.simplefilter("ignore")

TEXTS = """
1e-8|1e5|1.5e3|1_000|0x10|+5|-5|[1,2]|(1,)|1,2|0.99, 0.01, 0.00|{'a': 1}|none|None|null|Null|NULL|~
true|True|TRUE|false|False|FALSE|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|y|n|oN|nOne|NONE
TRUE|inf|nan|.inf|-.inf|+.Inf|.nan|.NaN|-.nan|1e400|-1e400|[a,b]|{a: 1}|007|1+2|2**3|00:15:00|'abc'|1j|...|b'x'
017|0o17|0o18|12:30:45|2026-08-01|2026-8-1|2026-08-01T10:00:00|2026-08-01 10:00:00.5 -3:30|2001-12-14t21:59:43.10-05:00
0|00|-0|+0|0.0|-0.0|1.|.5|-.5|+.5|5.e+3|5.e3|1.0e+10|1.0e10|1e+5|1_0.5_0|1__0|_1|1_|0x_f|0xF_F|0b101|0b_1|0B1|0X1f|0O7
190:20:30|190:20:30.15|-1:30|+1:30:00|1:60|1:5|0:30|1:2:3:4|20:30:|08|09|0_7|0_|08.5|-017|0b12|0x|0b|9223372036854775807
9223372036854775808|-9223372036854775808|-9223372036854775809|99999999999999999999|0xffffffffffffffff|123456789012345678901234567890
abc|a b|a-b|hello world|/path/to/file|gpt2|meta-llama/Llama-3.2-1B|1.2.3|1-2|3.14abc|1e|e5|1e5e5|0.1.2|+|-|--5|+-5|- 5|-True|+ 5
[]|()|{}|[1]|[1,]|(1)|(1, 2)|((1))|[[1, 2], [3]]|[1, [2, (3,)]]|{'a': {'b': [1]}}|{1: 2}|{'a': 1, 'a': 2}|{1, 2}|{(1, 2): 3}|{[1]: 2}
"x"|'a' 'b'|'a'"b"|'a' b'c'|r'\\d'|'\\n'|'\\x41'|'\\u00e9'|'\\101'|'\\q'|u'x'|f'x'|rb'x'|b'a' b'b'|'''x'''|'a|a'|"it's"|'it''s'|''
True,|None, 1|1 # one|#x|1,2,|,1|[1 2]|[1,,2]|[1|1]|(1,|{'a'}|{'a': }|{'a': 1,}|{**{}}|[*[1]]|1 if 2 else 3|lambda: 0|x|x()|set()|set(1)
1+2j|1-2j|2j+1|-1+2j|1j+2j|1.5J|True+1j|1e5j|[1j]|['a', "b"]|[None, True, 1.5]|['none', '5']|{'x': 'none'}|0777.5|1.5.real|1 .real|0_0|0_1|00.5
9.|1E5|1E-5|-1e-8|1e-400|5e-324|1.7976931348623157e308|0.1|3.0|1e22|123456789.123456789|1_0e1_0|.5e-3|.e5|._5|1._5
=|<|>=1|a=b|a: b|key:value|http://x.y/z|C:\\dir|*x|&x|!x|%x|@x|`x`|{{x}}|{% if %}|<<|null_value|nullx|Nones|truely|yes!|١٢|１
50,30,20|900,50,50|["a","b"]|[ 1 , 2 ]|( 1 , 2 )|{ 'a' : 1 }|-[1]|+(1)|-(1)|-(-1)|(1)+2j|(+1)|not True|1 == 1|1 < 2|'a' % 1|'a' * 3
""".strip().splitlines()
EXTRA = ["", " 5", "5 ", "\t5", " none", "5\n", "\n5", "\n 5", "[1,\n2]", "1,\n2", "(1\n)", "[1, # x\n2]", "'a\nb'",
         "a\nb", "5 # five", "\"a\\nb\"", "'\\\nx'", "1 \\\n", "[1 \\\n,2]", "(" * 20 + "1" + ")" * 20, "é", "'é'",
         "1" * 999, "[" + "1," * 400 + "]", "[" + "1, " * 400 + "]", "x" * 1001, " " + "1" * 1000, "[1]]", "{'a': [1}]",
         "None None", "0.99, 0.01, 0.00 ", "\n", "\n\n[1]\n\n", "# c\n5", "  # c\n5", "5\n6", "5\n # c\n", "1\f"]


def translate(value, key=""):
    """Upstream's rules for a value that YAML made."""
    if isinstance(value, dict):
        return {k: translate(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [translate(v) for v in value]
    if not isinstance(value, str):
        return value
    if value in ("none", "None"):
        return None
    if value in ("true", "True"):
        return True
    if value in ("false", "False"):
        return False
    if len(value) > 1000:
        return value
    try:
        return ast.literal_eval(value)
    except Exception:
        return value


def describe(value):
    """A value as {kind, value}; nested values the same way."""
    if value is None:
        return {"kind": "null"}
    if isinstance(value, bool):
        return {"kind": "bool", "value": value}
    if isinstance(value, int):
        small = -(2**63) <= value < 2**63
        return {"kind": "int", "value": value if small else float(str(value))}
    if isinstance(value, float):
        return {"kind": "float", "value": value}
    if isinstance(value, str):
        return {"kind": "string", "value": value}
    if isinstance(value, (datetime.date, datetime.datetime)):
        return {"kind": "date"}
    if isinstance(value, (list, tuple)):
        return {"kind": "list", "value": [describe(v) for v in value]}
    if isinstance(value, dict):
        return {"kind": "mapping", "value": [[str(k), describe(v)] for k, v in value.items()]}
    return {"kind": "foreign"}


def plain(text):
    """The text as a plain block value, or nothing where it cannot be one."""
    if "\n" in text or text != text.strip():
        return None
    try:
        events = list(yaml.parse(f"k: {text}\n"))
        value = events[4]
        one = isinstance(value, yaml.ScalarEvent) and value.style is None and len(events) == 8
        if not one or value.value != text:
            return None
        return describe(translate(yaml.safe_load(f"k: {text}\n")["k"]))
    except yaml.YAMLError:
        return None
    except ValueError:
        return {"kind": "error"}


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/config/data/scalars.json")
    rows = []
    for text in list(dict.fromkeys(t for line in TEXTS for t in line.split("|"))) + EXTRA:
        row = {"text": text, "string": describe(translate(text))}
        found = plain(text)
        if found is not None:
            row["plain"] = found
        rows.append(row)
    out.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(row, ensure_ascii=True) for row in rows)
    out.write_text(f"[\n{lines}\n]\n")
    print(f"{out}: {len(rows)} texts, PyYAML {yaml.__version__}, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
