#!/usr/bin/env python3
"""Writes docs/recipe_reference.md from the schema of recipes.

usage: make_recipe_reference.py [--check] [SCHEMA [PAGE]]

SCHEMA (default: schemas/recipe.schema.json) is what `automodel schema` prints. --check writes nothing:
exit status 1 when the page is not what the schema gives.
"""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

INTRODUCTION = """\
# Recipe reference

Every section and key of a recipe, made by `scripts/make_recipe_reference.py` from `schemas/recipe.schema.json`,
which the program makes from its own options. Do not edit this page. `automodel explain SECTION.KEY` says the same
of one key.

- A key without a default is absent unless it is written; its meaning says what that means. `null`, `none` and `~`
  are no value (on the command line `none` alone).
- A value may hold `${NAME}` or `${NAME,default}`: the value of an environment variable.
- "No effect here" means that the key is known and checked, and that setting it gives a warning with the reason.
- Sections with a `_target_` list the keys of all their targets. A key of another target than the one written is a
  mistake, and so is an unknown key. Sections that begin with `_` are yours, e.g. for YAML anchors: nothing reads them.
- `automodel check` says which of the names are not in this version, and which keys of a recipe it lacks.
"""

GROUPS = (
    ("no effect", "Sections without effect", "They are read and checked; a warning says that nothing here acts on them."),
    ("of the benchmark recipe", None, None),
    ("not in this version", "Sections that are not in this version",
     "They are read and checked, so that mistakes in them are found; a run that needs them ends with status 6."),
)


def sentence(text):
    """A text with a capital letter at its beginning and a full stop."""
    return text[:1].upper() + text[1:] + "."


def code(value):
    """A value as one writes it in YAML, in code quotes."""
    is_plain = isinstance(value, str) and value != ""
    return f"`{value if is_plain else json.dumps(value, ensure_ascii=False)}`"


def unique(values):
    return list(dict.fromkeys(values))


def alternatives(schema):
    """The schemas that a value may fit, without the ones that only let placeholders through."""
    return [part for part in schema.get("anyOf", [schema]) if part.keys() - {"type", "pattern"} or "anyOf" not in schema
            or "pattern" not in part]


def type_of(schema):
    """What a value is, in words."""
    if "$ref" in schema:
        return "section"
    if "enum" in schema:
        return "one of " + ", ".join(unique(code(value) for value in schema["enum"] if value is not None))
    if "anyOf" in schema:
        return " or ".join(unique(type_of(part) for part in alternatives(schema)))
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if "object" in types:
        text = "mapping, or a name" if schema.get("pattern") is None and "string" in types else "mapping"
    elif "array" in types:
        items = type_of(schema.get("items", {}))
        text = f"list of {items}s" if " " not in items else f"list ({items})"
    elif "boolean" in types:
        text = "boolean or string" if "string" in types and "pattern" not in schema else "boolean"
    elif "integer" in types:
        text = "integer"
    elif "number" in types and ("string" not in types or "pattern" in schema):
        text = "number"
    elif "string" in types:
        text = "string"
    else:
        text = "any"
    return text + range_of(schema)


def number(value):
    return str(int(value)) if value == int(value) else f"{value:g}"


def range_of(schema):
    low, above, high = schema.get("minimum"), schema.get("exclusiveMinimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f", {number(low)} to {number(high)}"
    if low is not None:
        return f", at least {number(low)}"
    if above is not None:
        return f", above {number(above)}"
    return "" if high is None else f", at most {number(high)}"


def is_of_several_targets(schema):
    return "title" in schema.get("anyOf", [{}])[0]


def values_of(schema, key):
    """What the alternatives of a schema say under `key`, each once."""
    if key in schema:
        return [schema[key]]
    found = []
    for part in schema.get("anyOf", []):
        if key in part and part[key] not in found:
            found.append(part[key])
    return found


def of_targets(schema, key):
    """What a key of several targets has under `key`, each value once with the targets' names."""
    names = {}
    for part in schema["anyOf"]:
        for value in values_of(part, key) or [None]:
            names.setdefault(None if value is None else code(value) if key == "default" else value, []).append(part["title"])
    if len(names) == 1:
        return next(iter(names)) or ""
    shown = names.items() if key == "description" else [(value, told) for value, told in names.items() if value]
    return "; ".join(f"{value or 'none'} ({', '.join(told)})" for value, told in shown)


def row(key, schema):
    default = " or ".join(code(value) for value in values_of(schema, "default"))
    meaning = "; or ".join(values_of(schema, "description"))
    if is_of_several_targets(schema):
        default, meaning = of_targets(schema, "default"), of_targets(schema, "description")
    cells = [f"`{key}`", type_of(schema), default, meaning or "one of upstream's keys; nothing here reads it"]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def rows(properties, prefix=""):
    for key, schema in properties.items():
        if key.startswith("_"):  # the target, told below, and Hydra's own keys, which are dropped
            continue
        yield row(prefix + key, schema)
        yield from rows(schema.get("properties", {}), f"{prefix}{key}.")


def names_of(schema):
    """The names that a _target_ may have."""
    return [name for part in schema.get("anyOf", []) for name in part.get("enum", [])]


def grouped_names(names):
    """Bullets of names: a class or method once, with all its paths."""
    groups = {}
    for name in names:
        parts = name.split(".")
        is_method = parts[-1] in ("from_pretrained", "from_config")
        groups.setdefault(".".join(parts[-2:] if is_method else parts[-1:]), []).append(name)
    for last, paths in groups.items():
        others = [path for path in paths if path != last]
        told = ", ".join(f"`{path}`" for path in others)
        yield f"- `{last}`: {told}" if last in paths and others else f"- {told or f'`{last}`'}"


def targets(properties, prefix=""):
    """(key, names) of every _target_ in a section, nested ones too."""
    for key, schema in properties.items():
        if key == "_target_":
            if names_of(schema):
                yield prefix + key, names_of(schema)
        else:
            yield from targets(schema.get("properties", {}), f"{prefix}{key}.")


def section(name, schema, level):
    lines = [f"{'#' * level} {name}", "", sentence(schema.get("description", "")), ""]
    properties = schema.get("properties", {})
    table = list(rows(properties))
    if table:
        lines += ["| key | type | default | meaning |", "|---|---|---|---|", *table, ""]
    for key, names in targets(properties):
        lines += [f"`{key}` may be:", "", *grouped_names(names), ""]
    return lines


def page(schema):
    sections = dict(schema["properties"])
    sections.update({pattern.lstrip("^") + "NAME": value
                     for pattern, value in schema.get("patternProperties", {}).items() if value})
    plain = {key: value for key, value in sections.items() if "properties" not in value}
    lines = [INTRODUCTION, "## Keys outside of sections", "", "| key | type | default | meaning |",
             "|---|---|---|---|"]
    for key, value in plain.items():
        names = [name for part in value.get("anyOf", []) for name in part.get("enum", [])]
        cells = {"type": "string", "enum": names} if names else value
        lines.append(row(key, {**cells, "description": value.get("description", "")}))
    lines.append("")
    grouped = {heading: [] for _, heading, _ in GROUPS}
    shown = {}
    for key, value in sections.items():
        if key in plain:
            continue
        description = value.get("description", "")
        group = next((heading for start, heading, _ in GROUPS if description.startswith(start)), "")
        if group == "":
            same = next((other for other, seen in shown.items() if seen == value["properties"]), None)
            if same is not None:
                lines += [f"## {key}", "", f"{sentence(description)[:-1]}: the keys of `{same}`.", ""]
                continue
            shown[key] = value["properties"]
            lines += section(key, value, 2)
        else:
            grouped[group].append((key, value))
    for _, heading, text in GROUPS:
        if heading is None:
            for key, value in grouped[heading]:
                lines += section(key, value, 2)
            continue
        lines += [f"## {heading}", "", text, ""]
        for key, value in grouped[heading]:
            lines += section(key, value, 3)
    return "\n".join(lines).rstrip() + "\n"


def main(arguments):
    is_check = arguments[:1] == ["--check"]
    paths = [pathlib.Path(argument) for argument in arguments[is_check:]]
    schema = paths[0] if paths else ROOT / "schemas" / "recipe.schema.json"
    target = paths[1] if len(paths) > 1 else ROOT / "docs" / "recipe_reference.md"
    text = page(json.loads(schema.read_text(encoding="utf-8")))
    if not is_check:
        target.write_text(text, encoding="utf-8")
        return 0
    if target.exists() and target.read_text(encoding="utf-8") == text:
        return 0
    print(f"{target}:1: not what {schema} gives; run scripts/make_recipe_reference.py")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
