#!/usr/bin/env python3
"""Validates recipes against the published schema.

usage: validate_recipes.py SCHEMA RECIPES...

RECIPES are files, or folders that are searched for *.yaml. Prints what does not fit; exit status 1
when anything does not.
"""

import datetime
import json
import pathlib
import sys

import jsonschema
import yaml


def as_json(value):
    """What an editor hands to a validator: dates are texts there."""
    if isinstance(value, dict):
        return {str(key): as_json(child) for key, child in value.items()}
    if isinstance(value, list):
        return [as_json(child) for child in value]
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    return value


def main(arguments):
    if len(arguments) < 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    schema = json.loads(pathlib.Path(arguments[0]).read_text(encoding="utf-8"))
    validator_class = jsonschema.validators.validator_for(schema)
    validator_class.check_schema(schema)
    validator = validator_class(schema)
    files = []
    for argument in arguments[1:]:
        path = pathlib.Path(argument)
        files += sorted(path.rglob("*.yaml")) if path.is_dir() else [path]
    num_wrong = 0
    for path in files:
        recipe = as_json(yaml.safe_load(path.read_text(encoding="utf-8")))
        errors = list(validator.iter_errors(recipe))
        num_wrong += bool(errors)
        for error in errors:
            place = ".".join(str(part) for part in error.absolute_path)
            print(f"{path}: {place}: {error.message[:200]}")
    print(f"{len(files) - num_wrong} of {len(files)} recipes fit the schema")
    return 1 if num_wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
