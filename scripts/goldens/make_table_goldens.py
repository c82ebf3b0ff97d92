#!/usr/bin/env python3
"""Makes tests/tables/data: small tables with pyarrow, and what pyarrow reads in them as JSON lines.

usage: make_table_goldens.py      (pyarrow 26.0.1; pip install pyarrow)
"""

import csv
import datetime
import decimal
import gzip
import json
import os

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather
import pyarrow.parquet as pq

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "tables", "data")


def squad_rows(count):
    """Rows of rajpurkar/squad's shape."""
    for i in range(count):
        text = f"The answer to question {i} is number {i * i}, says the naïve café."
        yield {
            "id": f"{i:08x}",
            "title": f"Title {i // 3}",
            "context": text,
            "question": f"What is {i} times {i}?",
            "answers": {"text": [f"number {i * i}"], "answer_start": [text.index("number")]},
        }


def hellaswag_rows(count):
    """Rows of rowan/hellaswag's shape."""
    for i in range(count):
        yield {
            "ind": i,
            "activity_label": "Counting",
            "ctx_a": f"A person counts to {i}.",
            "ctx_b": "they",
            "ctx": f"A person counts to {i}. they",
            "endings": [f"stop at {i + j}." for j in range(4)],
            "source_id": f"made~{i}",
            "split": "train",
            "split_type": "indomain",
            "label": str(i % 4),
        }


def squad_schema():
    answers = pa.struct([("text", pa.list_(pa.string())), ("answer_start", pa.list_(pa.int32()))])
    return pa.schema([("id", pa.string()), ("title", pa.string()), ("context", pa.string()),
                      ("question", pa.string()), ("answers", answers)])


def typed_table():
    """A column of every type, with nulls, and columns that rows cannot hold."""
    moment = datetime.datetime(2024, 2, 29, 12, 30, 15)
    day = datetime.date(2024, 2, 29)
    columns = {
        "int8": pa.array([-128, 127, None], pa.int8()),
        "uint32": pa.array([0, 4294967295, None], pa.uint32()),
        "int64": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
        "float32": pa.array([0.5, -1.25, None], pa.float32()),
        "double": pa.array([0.1, 1e300, None], pa.float64()),
        "half": pa.array([0.5, 65504.0, None], pa.float16()),
        "bool": pa.array([True, False, None]),
        "string": pa.array(["", "naïve \U0001f600 \"quoted\"\n", None]),
        "large_string": pa.array(["a", "b", None], pa.large_string()),
        "dictionary": pa.array(["red", "blue", None]).dictionary_encode(),
        "list": pa.array([[1, 2, None], [], None], pa.list_(pa.int64())),
        "large_list": pa.array([["a"], ["b", "c"], None], pa.large_list(pa.string())),
        "fixed": pa.array([[1, 2], [3, 4], None], pa.list_(pa.int32(), 2)),
        "nested": pa.array(
            [[{"role": "user", "content": "hi", "n": {"x": [1.5]}}], [], None]),
        "day": pa.array([day, day, None], pa.date32()),
        "moment": pa.array([moment, moment, None], pa.timestamp("ms")),
        "decimal": pa.array([decimal.Decimal("1.50"), decimal.Decimal("-2.25"), None],
                            pa.decimal128(5, 2)),
        "nothing": pa.array([None, None, None], pa.null()),
        "bytes": pa.array([b"\x00\xff", b"", None], pa.binary()),
        "picture": pa.array([{"bytes": b"\x89PNG", "path": "a.png"}, None, None],
                            pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
    }
    return pa.table(columns)


def shown(value):
    """A value as rows hold it."""
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, list):
        return [shown(one) for one in value]
    if isinstance(value, dict):
        return {key: shown(one) for key, one in value.items()}
    return value


def write_rows(name, table, left_out=()):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as out:
        for row in table.drop_columns(list(left_out)).to_pylist():
            out.write(json.dumps(shown(row), ensure_ascii=False) + "\n")


def main():
    os.makedirs(HERE, exist_ok=True)
    at = lambda name: os.path.join(HERE, name)

    squad = pa.Table.from_pylist(list(squad_rows(2500)), squad_schema())
    pq.write_table(squad, at("squad.parquet"), compression="zstd", row_group_size=1000)
    write_rows("squad_first.jsonl", squad.slice(0, 3))
    hellaswag = pa.Table.from_pylist(list(hellaswag_rows(12)))
    pq.write_table(hellaswag, at("hellaswag.parquet"), compression="snappy", row_group_size=5)
    write_rows("hellaswag.jsonl", hellaswag)
    pq.write_table(hellaswag.slice(6), at("hellaswag_validation.parquet"), compression="snappy")

    types = typed_table()
    write_rows("types.jsonl", types, ["bytes", "picture"])

    pq.write_table(types, at("types.parquet"), compression="gzip")
    with pa.OSFile(at("types.arrow"), "wb") as out, pa.ipc.new_stream(out, types.schema) as stream:
        stream.write_table(types)
    pyarrow.feather.write_feather(types, at("types.feather"), compression="lz4")

    numbered = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([("text", pa.string()), ("source", numbered)])
    with pa.OSFile(at("dictionaries.arrow"), "wb") as out, pa.ipc.new_stream(out, schema) as stream:
        for texts, sources in (("ab", ["x", "y"]), ("cde", ["z", None, "x"])):
            columns = [pa.array(list(texts)), pa.array(sources).dictionary_encode().cast(numbered)]
            stream.write_batch(pa.record_batch(columns, schema=schema))
    schema = pa.schema([("lists", pa.list_(numbered)), ("struct", pa.struct([("name", numbered)])),
                        ("map", pa.map_(pa.string(), numbered))])
    with pa.OSFile(at("nested_dictionaries.arrow"), "wb") as out, pa.ipc.new_stream(out, schema) as stream:
        for texts in (["x", "y"], ["z", None, "x"]):
            lists = [texts, None, texts[:1]]
            structs = [{"name": text} for text in texts] + [None] * (3 - len(texts))
            columns = [pa.array(lists, pa.list_(pa.string())), pa.array(structs, pa.struct([("name", pa.string())]))]
            plain = pa.record_batch(columns, names=schema.names[:2])
            inner = plain["lists"].values.dictionary_encode().cast(numbered)
            nested = pa.ListArray.from_arrays(plain["lists"].offsets, inner, mask=plain["lists"].is_null())
            names = plain["struct"].field("name").dictionary_encode().cast(numbered)
            records = pa.StructArray.from_arrays([names], ["name"], mask=plain["struct"].is_null())
            items = pa.array(texts[::-1]).dictionary_encode().cast(numbered)
            keys = pa.array([f"key {i}" for i in range(len(items))])
            offsets = [0, 1, 1, len(items)]
            maps = pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items)
            stream.write_batch(pa.record_batch([nested, records, maps], schema=schema))

    with open(at("rows.csv"), "w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["question", "answer", "number"])
        writer.writerow(["one, two", 'say "three"', 4])
        writer.writerow(["two\nlines", "naïve", 5])
    with gzip.GzipFile(at("rows.jsonl.gz"), "wb", mtime=0) as out:
        for row in hellaswag.to_pylist():
            out.write((json.dumps(row) + "\n").encode())
    plain = "".join(json.dumps(row) + "\n" for row in hellaswag.to_pylist()).encode()
    with pa.CompressedOutputStream(pa.OSFile(at("rows.jsonl.zst"), "wb"), "zstd") as out:
        out.write(plain)
    assert pc.all(pc.equal(squad["id"], pq.read_table(at("squad.parquet"))["id"])).as_py()


if __name__ == "__main__":
    main()
