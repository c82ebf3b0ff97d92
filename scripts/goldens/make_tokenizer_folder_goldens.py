#!/usr/bin/env python3
"""Makes tests/tokenizers/folders.json: folders of small tokenizers whose files beside tokenizer.json add and name
tokens, and what transformers' AutoTokenizer makes of texts with them.

Run with a Python that has transformers 5:
  python scripts/goldens/make_tokenizer_folder_goldens.py
"""

import json
import pathlib
import tempfile

from make_tokenizer_goldens import BYTE_BPE, PIECES, PRECOMPILED, bpe, part, sequence, unigram
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "tokenizers" / "folders.json"
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
LEVEL = part("ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
SCORED = [*PIECES, ("[CLS]", 0.0), ("[SEP]", 0.0)]
BASES = {
    "bytes": dict(pre_tokenizer=LEVEL, decoder=LEVEL, normalizer=None,
                  model=bpe({c: i for i, c in enumerate(ALPHABET)}, [])),
    "pieces": dict(pre_tokenizer=None, decoder=None, normalizer=part("Prepend", prepend="\u2581"), model=BYTE_BPE),
    "scores": dict(
        pre_tokenizer=part("Whitespace"), decoder=None,
        normalizer=sequence("normalizers", part("Strip", strip_left=True, strip_right=True), PRECOMPILED),
        model=unigram(SCORED, unk_id=7)),
}
TEXTS = ["a <x> b<y>  <z> a", " sp <s></s> <|endoftext|>é! <pad>", "<X> wo wow two", "<img>a <bos> <unk> "]


def token(content, token_id=None, **flags):
    fields = dict(content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
    return {**({} if token_id is None else {"id": token_id}), **fields, **flags}


def named(content, **flags):
    return {**token(content, **flags), "__type": "AddedToken"}


def padding(pad):
    return dict(strategy="BatchLongest", direction="Right", pad_to_multiple_of=None, pad_id=0, pad_type_id=0,
                pad_token=pad)


def truncation(direction):
    return dict(direction=direction, max_length=3, strategy="LongestFirst", stride=0)


def case(name, base="bytes", added=(), files=None, **document):
    return dict(name=name, base=base, document={"added_tokens": list(added), **document}, files=files or {})


def config(**entries):
    return {"tokenizer_config.json": entries}


N = len(ALPHABET)
P = len(BYTE_BPE["vocab"])
OWN = [token("<x>", N, rstrip=True), token("<y>", N + 1, special=True)]
PIECES = [token("<x>", P, lstrip=True), token("<s>", P + 1, special=True)]
CASES = [
    case("only tokenizer.json", added=OWN),
    case("added_tokens.json beside other tokens", added=OWN,
         files={**config(bos_token="<z>"), "added_tokens.json": {"<z>": N + 2, "wo": N + 3}}),
    case("added_tokens.json that repeats tokens", added=OWN,
         files={**config(eos_token="<x>"), "added_tokens.json": {"<y>": N + 1, "<x>": N, "sp": N + 2}}),
    case("added_tokens.json and special tokens with properties", added=OWN,
         files={**config(eos_token=named("<z>"), bos_token="<s>"), "added_tokens.json": {"<z>": N + 2, "<s>": N + 3},
                "special_tokens_map.json": {"unk_token": token("<unk>")}}),
    case("added_tokens.json of a class that builds anew", added=OWN,
         files={**config(tokenizer_class="GPT2Tokenizer"), "added_tokens.json": {"<z>": N + 2, "<X>": N + 3}}),
    case("no list of a class that builds anew", added=OWN,
         files={**config(tokenizer_class="Qwen3_5Tokenizer", eos_token="<x>")}),
    case("an empty list of a class that builds anew", added=OWN,
         files=config(tokenizer_class="Qwen3_5Tokenizer", added_tokens_decoder={})),
    case("a class that keeps the flags of its special tokens", added=[token("<x>", N, special=True, rstrip=True)],
         files=config(tokenizer_class="Qwen3_5Tokenizer", eos_token="<x>")),
    case("a class that adds its special tokens anew", added=[token("<x>", N, special=True, rstrip=True)],
         files=config(tokenizer_class="Qwen2Tokenizer", eos_token="<x>")),
    case("a list with a new token", added=OWN,
         files=config(added_tokens_decoder={str(N): token("<x>"), str(N + 2): token("<z>", lstrip=True)})),
    case("names of the model's own", added=OWN,
         files=config(image_token="<img>", audio_token=named("wo", single_word=True), pad_token="<pad>")),
    case("an object of extra tokens and a list of others", added=OWN,
         files=config(extra_special_tokens={"image_token": "<img>"}, additional_special_tokens=["<z>"])),
    case("two lists of extra tokens", added=OWN,
         files=config(extra_special_tokens=["<img>"], additional_special_tokens=["<z>"])),
    case("an empty list of extra tokens", added=OWN,
         files=config(extra_special_tokens=[], additional_special_tokens=["<z>"])),
    case("special_tokens_map.json", added=OWN,
         files={**config(bos_token="<bos>", additional_special_tokens=["<z>"]),
                "special_tokens_map.json": {"bos_token": token("<s>", lstrip=True), "unk_token": "<unk>",
                                            "additional_special_tokens": ["<X>"]}}),
    case("special_tokens_map.json with extra tokens", added=OWN,
         files={**config(extra_special_tokens=["<z>"]),
                "special_tokens_map.json": {"extra_special_tokens": ["<X>", "<z>"]}}),
    case("padding of tokenizer.json", added=OWN, padding=padding("<pad>"), truncation=truncation("Left"),
         files=config(bos_token="<s>", mask_token="<z>")),
    case("padding that another file forbids", added=OWN, padding=padding("<pad>"), truncation=truncation("Left"),
         files=config(pad_token=None, truncation_side="right")),
    case("padding of a class that has none", added=OWN, padding=padding("<pad>"),
         files=config(tokenizer_class="GPT2Tokenizer")),
    case("a token of several names", added=OWN,
         files=config(bos_token="<z>", sep_token=named("<z>", lstrip=True), cls_token="<z>")),
    case("special tokens with properties, that are normalized", base="pieces", added=PIECES,
         files={**config(eos_token=named("<z>"), bos_token="<img>"),
                "added_tokens.json": {"<z>": P + 2, "<img>": P + 3}}),
    case("Llama's class", base="pieces", added=PIECES, padding=padding("<pad>"),
         files={**config(tokenizer_class="LlamaTokenizer"), "added_tokens.json": {"<z>": P + 2}}),
    case("T5's class", base="scores", files=config(tokenizer_class="T5Tokenizer", extra_ids=2)),
    case("T5's class with a list of extra tokens", base="scores", added=[token("<z>", len(SCORED), special=True)],
         files={**config(eos_token="<z>", extra_special_tokens=["<img>"]), "config.json": {"model_type": "mt5"}}),
    case("XLM-RoBERTa's class", base="scores",
         files=config(tokenizer_class="XLMRobertaTokenizerFast", bos_token="<pad>", add_prefix_space=False)),
    case("CamemBERT's class", base="scores", added=[token("<s>", len(SCORED), special=True)],
         files=config(tokenizer_class="CamembertTokenizer")),
    case("ALBERT's class", base="scores", files={"config.json": {"model_type": "albert"}}),
    case("ALBERT's class with case and accents", base="scores",
         files=config(tokenizer_class="AlbertTokenizer", do_lower_case=False, keep_accents=True)),
    case("scores of no class", base="scores", files={"config.json": {"model_type": "umt5"}}),
    case("Gemma's class", base="pieces", added=PIECES,
         files=config(tokenizer_class="GemmaTokenizer", image_token="<img>", add_bos_token=True)),
]


def write(folder, files):
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))


def expected(it):
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        document = {"version": "1.0", "truncation": None, "padding": None, "post_processor": None, **BASES[it["base"]]}
        write(folder, {"tokenizer.json": {**document, **it["document"]}, **it["files"]})
        made = AutoTokenizer.from_pretrained(folder)
        ids = [made(text, add_special_tokens=False)["input_ids"] for text in TEXTS]
        more = {}
        if it["base"] == "scores":
            more["ids_special"] = [made(text)["input_ids"] for text in TEXTS]
        return dict(**more, class_name=type(made).__name__, ids=ids, decoded=[made.decode(line) for line in ids],
                    named=made.special_tokens_map, pad=made.pad_token_id, truncates_left=made.truncation_side == "left")


def main():
    cases = [{**it, "expected": expected(it)} for it in CASES]
    OUT.write_text(json.dumps({"bases": BASES, "texts": TEXTS, "cases": cases}, ensure_ascii=True) + "\n")
    print(f"{OUT.name}: {len(cases)} folders")


if __name__ == "__main__":
    main()
