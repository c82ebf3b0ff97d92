#!/usr/bin/env python3
"""Makes tests/tokenizers/data: small tokenizer.json files, one for each component and option, and what the
Hugging Face tokenizers library makes of nasty lines with them.

Run with a Python that has tokenizers 0.23:
  python scripts/goldens/make_tokenizer_goldens.py
"""

import base64
import json
import pathlib
import random
import shutil
import struct

import tokenizers
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "tokenizers" / "data"
QUICKSTART = ROOT / "configs" / "quickstart_tokenizer" / "tokenizer.json"

LINES = [
    "", " ", "  ", "   a", "a   ", " a b ", "\n", "\r\n", "\r", "\n\n\n", " \n \n a", "\t\ta\t", "a\u00a0b",
    "\u3000a\u3000", "\u2028\u2029", "\u0085a", "\u180ea", "\u200b\u200c\u200d\u2060\ufeff", "\0", "a\0b",
    "\x01\x7f\x9f", "\ufffd", "\ue000\U0010ffff", "the", "The THE the", " the ab", "thethe", "ab abab",
    "can't", "I'M we'LL they've", "don't do not n't 's", "' m", "a.b,c!d?e", "Hello, World!", "!!!", "...",
    "a--b", "(a)[b]{c}", "\"quoted\"", "100", "3.14", "1234567", "a1b22c333", "\u0663\u0664",
    "\u00bd\u00b2\u2167", "\u00e9", "e\u0301", "E\u0301e\u0323\u0301", "\u00c5\u212b", "\u1e9e\u00df",
    "\u0130I\u0131i", "\u01c5", "\ufb01\ufb03", "\u03a3\u03c3\u03c2", "\u00aa\u2460\u33a5", "\u0345\u0301",
    "\u1100\u1161\u11a8", "\ud55c\uad6d", "\uac00\u11a7", "\u4e2d\u6587", "a\u4e2db",
    "\u65e5\u672c\u8a9e\u3067\u3059", "\uff21\uff11\uff01", "\u30ab\u3099", "\u05e9\u05c1\u05dc\u05d5\u05dd",
    "\u0627\u0644\u0633\u0644\u0627\u0645", "\u061b\u060c\u061f", "\u0928\u092e\u0938\u094d\u0924\u0947",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f1e9\U0001f1ea", "\U0001f44d\U0001f3fd", "1\ufe0f\u20e3", "\U0001fae8\U0001fa77",
    "\U00020000\U00031350", "\u1c89\ua7cb", "\u2581", "\u2581a \u2581", " \u2581 ", "\u0120a\u010a", "<0x41>",
    "<0x0A><0xE9>", "<s>", "a<s>b", "<s><s>", " <s> a", "<ls> a <ls>", "a  <rs>  b", "a <lr> b", "wo two wo",
    "word wo-wo", "<S>", "##b a##b", "abc", "xabc abcx", "a" * 27, " " * 9, "7" * 9, "th" * 13, "\u00e9" * 5,
    "aA1!" * 3, "\n" * 7, "x=\"y\";\r\n\tz", "http://a.b/c?d=e&f",
]


def part(kind, **options):
    return {"type": kind, **options}


def sequence(member, *parts):
    return {"type": "Sequence", member: list(parts)}


def split(pattern, behavior="Isolated", invert=False, literal=False):
    return part("Split", pattern={"String" if literal else "Regex": pattern}, behavior=behavior, invert=invert)


def added(content, **options):
    token = dict(id=0, content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
    return {**token, **options}


def bpe(vocab, merges, **options):
    model = dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None)
    flags = dict(fuse_unk=False, byte_fallback=False, ignore_merges=False)
    return {**model, **flags, **options, "vocab": vocab, "merges": merges}


BYTES = {f"<0x{b:02X}>": b for b in range(256)}
WORDS = ["\u2581", "a", "b", "e", "t", "h", "th", "the", " ", "ab", "\u00e9"]
WORDS += ["\u2581the", "he", "\u2581a", " a", "aa", "7", "77"]
BYTE_VOCAB = {**BYTES, **{word: 256 + i for i, word in enumerate(WORDS)}}
MERGES = [["t", "h"], ["th", "e"], ["a", "b"], ["h", "e"], ["\u2581", "the"], ["\u2581", "a"]]
MERGES += [[" ", "a"], ["a", "a"], ["7", "7"]]
BYTE_BPE = bpe(BYTE_VOCAB, MERGES, byte_fallback=True)
METASPACE = part("Metaspace", replacement="\u2581", prepend_scheme="always", split=False)
FIRST = part("Metaspace", replacement="\u2581", prepend_scheme="first", split=True)
ADDED = [
    added("<s>", special=True), added("<ls>", lstrip=True, special=True), added("<rs>", rstrip=True),
    added("<lr>", lstrip=True, rstrip=True), added("wo", single_word=True), added("THE", normalized=True),
    added("<s><s>"), added("\u00e9", normalized=True), added("Ab", normalized=True, single_word=True), added("  "),
]
SMALL = ["a", "b", "c", "<unk>", "##b", "##c", "ab", "abc", "b</w>", "##c</w>", "[UNK]", "##bc"]
SMALL += ["c</w>", "a</w>", "bc</w>", "t", "h", "e", "th", "the", " "]
SMALL_VOCAB = {word: i for i, word in enumerate(SMALL)}


def tokenizer(normalizer=None, pre=None, post=None, decoder=None, tokens=(), model=None, marks=True):
    """With `marks`, pieces begin with a mark, so that ids tell where the text was cut."""
    if marks:
        pre = sequence("pretokenizers", pre, METASPACE) if pre else METASPACE
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": list(tokens), "normalizer": normalizer,
        "pre_tokenizer": pre, "post_processor": post, "decoder": decoder, "model": model or BYTE_BPE,
    }


def normalizer_cases():
    cases = {}
    for form in ("NFC", "NFD", "NFKC", "NFKD", "Nmt"):
        cases[f"normalizer_{form.lower()}"] = tokenizer(part(form))
    parts = [part("NFD"), part("StripAccents"), part("Lowercase")]
    cases["normalizer_sequence"] = tokenizer(sequence("normalizers", *parts))
    cases["normalizer_strip"] = tokenizer(part("Strip", strip_left=True, strip_right=True), pre=FIRST, marks=False)
    parts = [part("Prepend", prepend="\u2581"), part("Replace", pattern={"String": " "}, content="\u2581")]
    cases["normalizer_prepend"] = tokenizer(sequence("normalizers", *parts), marks=False)
    cases["normalizer_replace"] = tokenizer(part("Replace", pattern={"Regex": "\\s+|x*"}, content="-"))
    cases["normalizer_byte_level"] = tokenizer(part("ByteLevel"))
    cases["normalizer_bert"] = tokenizer(
        part("BertNormalizer", clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True))
    cases["normalizer_bert_cased"] = tokenizer(
        part("BertNormalizer", clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False))
    return cases


def pre_tokenizer_cases():
    cases = {}
    for name in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer"):
        cases[f"pre_{name.lower()}"] = tokenizer(pre=part(name))
    cases["pre_digits"] = tokenizer(pre=part("Digits", individual_digits=False))
    cases["pre_digits_individual"] = tokenizer(pre=part("Digits", individual_digits=True))
    for i, behavior in enumerate(("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")):
        cases[f"pre_split_{behavior.lower()}"] = tokenizer(pre=split(r"\s|[aeiou\p{P}]+", behavior, invert=i == 0))
    cases["pre_punctuation"] = tokenizer(pre=part("Punctuation", behavior="Contiguous"))
    cases["pre_split_literal"] = tokenizer(pre=split("a", "MergedWithNext", literal=True))
    cases["pre_split_empty"] = tokenizer(pre=split("x*", "MergedWithPrevious"))
    cases["pre_split_words"] = tokenizer(pre=split(r"\b\w+(?=\W|$)|[[:punct:]&&[^!]]+|[^\W\d]\S|\p{Han}|\h{2}"))
    cases["pre_fixed_length"] = tokenizer(pre=part("FixedLength", length=3))
    cases["pre_delimiter"] = tokenizer(pre=part("CharDelimiterSplit", delimiter="a"))
    cases["pre_byte_level"] = tokenizer(
        pre=part("ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True),
        decoder=part("ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True))
    for scheme in ("first", "never"):
        for cut in (True, False):
            pre = part("Metaspace", replacement="\u2581", prepend_scheme=scheme, split=cut)
            decoder = part("Metaspace", replacement="\u2581", prepend_scheme=scheme, split=cut)
            cases[f"pre_metaspace_{scheme}_{'cut' if cut else 'whole'}"] = tokenizer(
                pre=pre, decoder=decoder, tokens=ADDED[:1], marks=False)
    llama3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
              r"|\s+(?!\S)|\s+")
    lower = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    upper = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
    ends = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    gpt4o = (rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{ends}|[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*{ends}|\p{{N}}{{1,3}}"
             r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    cases["pre_llama3"] = tokenizer(pre=split(llama3))
    cases["pre_gpt4o"] = tokenizer(pre=split(gpt4o, "Removed", invert=True))
    return cases


def other_cases():
    text = {"Sequence": {"id": "A", "type_id": 0}}
    start = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    pair = [text, {"Sequence": {"id": "B", "type_id": 0}}]
    specials = {"<s>": {"id": "<s>", "ids": [1, 2], "tokens": ["<s>", "x"]}}
    template = part("TemplateProcessing", single=[start, text, start], pair=pair, special_tokens=specials)
    byte_level = part("ByteLevel", add_prefix_space=True, trim_offsets=False, use_regex=True)
    cases = {
        "post_template": tokenizer(post=sequence("processors", byte_level, template)),
        "post_bert": tokenizer(post=part("BertProcessing", sep=["x", 5], cls=["y", 6])),
        "post_roberta": tokenizer(
            post=part("RobertaProcessing", sep=["x", 5], cls=["y", 6], trim_offsets=True, add_prefix_space=False)),
        "added": tokenizer(tokens=ADDED),
        "added_normalized": tokenizer(sequence("normalizers", part("NFD"), part("Lowercase")), tokens=ADDED),
        "added_metaspace_first": tokenizer(pre=FIRST, tokens=ADDED, marks=False),
    }
    decoders = {
        "byte_fallback": sequence(
            "decoders", part("Replace", pattern={"String": "\u2581"}, content=" "), part("ByteFallback"),
            part("Fuse"), part("Strip", content=" ", start=1, stop=0)),
        "word_piece": part("WordPiece", prefix="t", cleanup=True),
        "ctc": part("CTC", pad_token="a", word_delimiter_token="\u2581", cleanup=True),
        "bpe": part("BPEDecoder", suffix="e"),
        "replace_strip": sequence(
            "decoders", part("Replace", pattern={"Regex": "[\u2581<]+"}, content="-"),
            part("Strip", content="-", start=2, stop=0)),
        "metaspace": part("Metaspace", replacement="\u2581", prepend_scheme="always", split=True),
    }
    for name, decoder in decoders.items():
        tokens = [added("<s>", special=True), added("don't"), added(" do not")]
        cases[f"decoder_{name}"] = tokenizer(decoder=decoder, tokens=tokens)
    return cases


def model_cases():
    words = part("Whitespace")
    pairs = [["a", "b"], ["ab", "c"]]
    lines = ["a b", "ab c"]
    unknown = dict(unk_token="<unk>")
    suffix = part("BPEDecoder", suffix="</w>")
    affixed = ["a ##b", "ab ##c", "##b ##c"]
    some_bytes = {**SMALL_VOCAB, **{name: byte + 100 for name, byte in BYTES.items() if byte < 200}}
    models = {
        "bpe_no_unknown": (bpe(SMALL_VOCAB, lines), None, None),
        "bpe_unknown": (bpe(SMALL_VOCAB, pairs, **unknown), None, None),
        "bpe_fused_unknown": (bpe(SMALL_VOCAB, lines, fuse_unk=True, **unknown), None, None),
        "bpe_prefix": (bpe(SMALL_VOCAB, affixed, continuing_subword_prefix="##", **unknown), words, None),
        "bpe_suffix": (bpe(SMALL_VOCAB, [["b", "c</w>"]], end_of_word_suffix="</w>", **unknown), words, suffix),
        "bpe_ignore_merges": (bpe(SMALL_VOCAB, [], ignore_merges=True, **unknown), words, None),
        "bpe_bytes_or_unknown": (bpe(some_bytes, pairs, byte_fallback=True, **unknown), None, None),
        "word_level": (part("WordLevel", vocab=SMALL_VOCAB, unk_token="<unk>"), words, None),
        "word_piece": (
            part("WordPiece", vocab=SMALL_VOCAB, unk_token="[UNK]", continuing_subword_prefix="##",
                 max_input_chars_per_word=10),
            part("BertPreTokenizer"), part("WordPiece", prefix="##", cleanup=True)),
    }
    cases = {}
    for name, (model, pre, decoder) in models.items():
        cases[f"model_{name}"] = tokenizer(pre=pre, decoder=decoder, model=model, marks=False)
    return cases


def charsmap(rules):
    """SentencePiece's table of rules: a double-array trie of the keys and what they become."""
    rules = {key.encode(): text.encode() for key, text in rules.items()}
    children = {key[:i]: set() for key in rules for i in range(len(key) + 1)}
    for prefix in filter(None, children):
        children[prefix[:-1]].add(prefix[-1])
    units, texts, used, place = {}, b"", {0}, {b"": 0}
    for prefix in sorted(children, key=lambda key: (len(key), key)):
        base = next(b for b in range(1, 1 << 20) if not used & {b, *(b ^ byte for byte in children[prefix])})
        used |= {base, *(base ^ byte for byte in children[prefix])}
        place.update({prefix + bytes([byte]): base ^ byte for byte in children[prefix]})
        label = prefix[-1] if prefix else 0
        units[place[prefix]] = (place[prefix] ^ base) << 10 | (prefix in rules) << 8 | label
        if prefix in rules:
            units[base] = 1 << 31 | len(texts)
            texts += rules[prefix] + b"\0"
    size = (max(used) | 0xFF) + 1
    return struct.pack(f"<{size + 1}I", 4 * size, *(units.get(i, 0) for i in range(size))) + texts


def precompiled(content):
    return part("Precompiled", precompiled_charsmap=base64.b64encode(content).decode())


RULES = {
    "\t": " ", "\n": " ", "\r": " ", "\u00a0": " ", "\u3000": " ", "\u2028": " ", "\u200b": "", "\u200d": "",
    "\u00ad": "", "A": "a", "T": "t", "E": "e", "E\u0301": "\u00e9", "e\u0301": "\u00e9", "\u0301": "", "\u00c5": "a",
    "\u212b": "a", "\ufb01": "fi", "\ufb03": "ffi", "\u2460": "1", "\u00bd": "1/2", "\uff21": "a", "\uff01": "!",
    "\u30ab\u3099": "\u30ac", "\u30ab": "ka", "\u1100\u1161": "\uac00", "\uac00": "ga", "\u11a8": "k", "\u0928": "na",
    "\u094d": "-", "\U0001f468": "man", "\U0001f44d": "yes", "1\ufe0f": "1", "\u00a9": "(c)", "...": "\u2026", "``": "\"",
}
PRECOMPILED = precompiled(charsmap(RULES))
PIECES = [
    ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -2.0122928619384766), ("a", -3.5), ("b", -3.75), ("e", -2.25),
    ("t", -3.125), ("h", -4.5), ("th", -4.0), ("\u2581the", -3.1415926535897931), ("the", -5.0), ("he", -6.5),
    ("\u2581a", -3.5), ("aa", -7.0), ("aaa", -10.122302055358887), ("ab", -7.25), ("\u00e9", -8.0), ("7", -4.1),
    ("77", -8.2), ("777", -12.3), (".", -4.0), ("..", -6.0), ("man", -7.5), ("1", -5.5), ("/", -5.0), (" ", -5.0),
    ("\u2581wo", -9.0), ("rd", -9.5), ("!", -6), ("\u4e2d\u6587", -9.0), ("", -11.0), ("ab", -7.5), ("\U0001f600", -9.25),
]


def unigram(pieces, **options):
    return part("Unigram", **{"unk_id": 2, "byte_fallback": False, **options}, vocab=[list(piece) for piece in pieces])


def template(before, behind, pieces):
    """A post-processor with these special tokens before and behind a text."""
    names = [name for name, _ in pieces]
    special = [{"SpecialToken": {"id": name, "type_id": 0}} for name in before + behind]
    single = [*special[:len(before)], {"Sequence": {"id": "A", "type_id": 0}}, *special[len(before):]]
    pair = [*single, {"Sequence": {"id": "B", "type_id": 0}}]
    ids = {name: {"id": name, "ids": [names.index(name)], "tokens": [name]} for name in before + behind}
    return part("TemplateProcessing", single=single, pair=pair, special_tokens=ids)


def unigram_cases():
    always = part("Metaspace", replacement="\u2581", prepend_scheme="always", split=True)
    words = sequence("pretokenizers", part("WhitespaceSplit"), always)
    byte_pieces = [(name, -20.0) for name in BYTES]
    some_bytes = PIECES + byte_pieces[:200]
    positive = [("<unk>", 30.0), ("a", 25.0), ("ab", 40.0), ("\u4e2d\u6587", 41.0), ("th", 26.5)]
    ties = [("<unk>", 0.0), ("a", -0.1), ("aa", -0.2), ("aaa", -0.30000000000000004), ("th", -0.7), ("t", -0.3),
            ("h", -0.4), ("hth", -1.1), ("7", -1e-1), ("77", -2.0e-1), ("777", -0.3), (" ", -1)]
    spaces = part("Replace", pattern={"Regex": " {2,}"}, content=" ")
    quotes = [part("Replace", pattern={"String": text}, content='"') for text in ("``", "''")]
    albert = sequence("normalizers", *quotes, part("NFKD"), part("StripAccents"), part("Lowercase"), PRECOMPILED)
    specials = [added(name, id=i, special=True) for i, (name, _) in enumerate(PIECES[:3])]
    xlm = [("<s>", 0.0), *PIECES]
    xlm_specials = [added(name, id=i, special=True) for i, (name, _) in enumerate(xlm[:4])]
    mask = added("<mask>", id=len(xlm), lstrip=True, special=True)
    return {
        "model_unigram": tokenizer(model=unigram(PIECES), marks=False),
        "model_unigram_bytes": tokenizer(model=unigram(PIECES + byte_pieces, byte_fallback=True), pre=always, marks=False),
        "model_unigram_bytes_or_unknown": tokenizer(model=unigram(some_bytes, byte_fallback=True), marks=False),
        "model_unigram_positive": tokenizer(model=unigram(positive, unk_id=0), marks=False),
        "model_unigram_ties": tokenizer(model=unigram(ties, unk_id=0), marks=False),
        "normalizer_precompiled": tokenizer(PRECOMPILED),
        "pipeline_t5": tokenizer(PRECOMPILED, words, template([], ["</s>"], PIECES), always, specials, unigram(PIECES),
                                 marks=False),
        "pipeline_xlm_roberta": tokenizer(
            sequence("normalizers", PRECOMPILED, spaces), always, template(["<s>"], ["</s>"], xlm), always,
            [*xlm_specials, mask], unigram(xlm, unk_id=3), marks=False),
        "pipeline_albert": tokenizer(albert, always, template(["<pad>"], ["</s>"], PIECES), always, specials,
                                     unigram(PIECES), marks=False),
    }


def clusters():
    """Texts of characters that join their neighbours in grapheme clusters, and what a rule for all that ends with
    the first byte of U+0301 makes of them: of small clusters it takes the whole, else single characters."""
    units = [0] + [c << 10 | c for c in range(1, 256)]
    units[0xCC] |= 1 << 8
    content = struct.pack("<257I", 1024, *units) + b"!\0"
    yield {"normalizer": precompiled(content)}
    normalize = normalizers.Precompiled(content).normalize_str
    numbers = random.Random(5)
    characters = ("a\r\n\0 \u00a9\u00ae\u0301\u0301\u0301\u0301\u0600\u06dd\u0903\u0915\u0915\u094d\u094d\u093c\u09b0\u09cd"
                  "\u1100\u1161\u11a8\uac00\uac01\u200b\u200c\u200d\u200d\u231a\ufe0f\U0001f600\U0001f3fd\U0001f1e9"
                  "\u0897\u0d4e\u1780\u17d2\u1b44\ufff0\u00ad\u1039\u1000\U0001e4ec\U000e0020\u0378")
    for _ in range(500):
        text = "".join(numbers.choice(characters) for _ in range(numbers.randrange(2, 8)))
        yield {"text": text, "normalized": normalize(text)}


def scores():
    """Numbers and the doubles that the library reads them as, which are not always the nearest ones."""
    numbers = random.Random(6)
    texts = ["0", "-0", "-7", "18446744073709551615", "18446744073709551616", "184467440737095516150.5", "1.5e3", "1E-5",
             "-1.25e+2", "0.1", "2e-320", "1e-400", "123456789012345678901234567890e-20", "0.00000000000000000000000000012"]
    texts += [repr(-struct.unpack("f", struct.pack("f", numbers.uniform(1, 16)))[0]) for _ in range(150)]
    texts += [repr(-numbers.uniform(0, 20)) for _ in range(100)]
    texts += [f"{numbers.uniform(-1, 1):.25f}" for _ in range(30)]
    texts += [repr(numbers.uniform(1, 9) * 10.0**numbers.randrange(-300, 300)) for _ in range(100)]
    described = json.dumps(tokenizer(model=unigram([("t", 1.5)], unk_id=0), marks=False))
    entries = ",".join(f'["t{i}",{text}]' for i, text in enumerate(texts))
    read = json.loads(Tokenizer.from_str(described.replace('["t", 1.5]', entries)).to_str())["model"]["vocab"]
    return [[text, value] for text, (_, value) in zip(texts, read, strict=True)]


PATTERNS = [
    r"\b", r"\B", r"\b\w+\b", r".", r"(?m:.+)", r"\N+", r"\O", r"\R", r"\h+|\H", r"\v", r"\s+$", r"^\s*\w",
    r"\s+\z", r"\s+\Z", r"x*", r"[a[b-d]e]+", r"[a[^b-z]]+", r"[\p{L}&&[^a-m]]+", r"[^\p{L}&&a-z]+",
    r"[a-z&&[^aeiou]&&[^x-z]]+", r"[[:alpha:]_]+|[[:^alpha:]]", r"[^[:space:][:digit:]]+", r"[\Wa]+",
    r"[^\Wa]+", r"[\Sa]", r"[\s\-x]+", r"[]a]+|[a\]]+", r"[a&b]+", r"[a-]|[-b]|[a\-z]", r"[\x{61}-\u0063]+",
    r"(?i)[a-k]+|stra\u00dfe", r"(?i:k|s)", r"a(?i)b|c", r"a{2}{2}|b{,2}c|(?:t|h){1,2}+e", r"a{1,2}?|b+?",
    r"\p{^L}+|\P{^Lu}", r"\p{Letter}+|\p{Decimal_Number}", r"\p{Alpha}+|\p{Punct}+|\p{Space}",
    r"\p{Upper}\p{Lower}*", r"\p{Word}+", r"\p{Han}+|\p{Hiragana}+|\p{Greek}|\P{Latin}",
    r"(?<=a)b|t(?=h)|(?<!t)h", r"(?>a+)b", r"(?<x>a)(?<y>b)?", r"(.)\1", r"th\Ke", r"\-|\#|\'|\"|\/|\<",
    r"\u3042|\x{e9}|\x41", r"(?#comment)a",
]
CLASSES = [
    r"\s", r"\S", r"\w", r"\W", r"\d", r"\D", r"[\w]", r"[^\w]", r"\p{L}", r"\P{L}", r"\p{N}", r"\p{M}",
    r"\p{P}", r"\p{S}", r"\p{Z}", r"\p{C}", r"\p{Cn}", r"\p{Lu}", r"\p{Ll}", r"\p{Lt}", r"\p{Lm}", r"\p{Lo}",
    r"\p{Han}", r"\p{Hiragana}", r"\p{Katakana}", r"\p{Greek}", r"\p{Emoji}", r"\p{Alphabetic}", r"\p{Punct}",
    r"\p{^Alnum}", r"[[:alpha:]]", r"[[:^alpha:]]", r"[[:alnum:]]", r"[[:upper:]]", r"[[:lower:]]",
    r"[[:digit:]]", r"[[:space:]]", r"[[:blank:]]", r"[[:punct:]]", r"[[:^punct:]]", r"[[:cntrl:]]",
    r"[[:graph:]]", r"[[:print:]]", r"[[:xdigit:]]", r"[[:word:]]", r"[[:ascii:]]", r"(?i:s)", r"(?i:[a-z])",
    r"[^\s\p{L}\p{N}]", r"[\p{L}\p{M}&&[^\p{Han}]]", r"[^\r\n\p{L}\p{P}\p{S}]",
]


def regular_expressions():
    """Of every pattern the ends of its pieces of every line; of every class how many characters of a sample it
    holds, and their sum."""
    sample = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and (c < 0x3400 or c % 61 == 0))
    for pattern in PATTERNS:
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        ends = [[span[1] for _, span in split.pre_tokenize_str(line)] for line in LINES]
        yield {"pattern": pattern, "ends": ends}
    for pattern in CLASSES:
        split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
        found = [ord(c) for piece, _ in split.pre_tokenize_str(sample) for c in piece]
        yield {"pattern": pattern, "count": len(found), "sum": sum(found)}


def expected(one, seed):
    """Of every line ids, ids with special tokens, and both decoded; of random ids what they decode to. A member
    that says nothing new (decoded as the line, with specials as without) is left out."""
    random_numbers = random.Random(seed)
    lines = []
    for line in LINES:
        ids = one.encode(line, add_special_tokens=False).ids
        entry = {"ids": ids}
        new = {"decoded": (one.decode(ids, skip_special_tokens=False), line)}
        new["ids_special"] = (one.encode(line, add_special_tokens=True).ids, ids)
        new["decoded_skip_special"] = (one.decode(ids, skip_special_tokens=True), new["decoded"][0])
        lines.append({**entry, **{key: value for key, (value, usual) in new.items() if value != usual}})
    decoded = []
    for _ in range(12):
        count = random_numbers.choice([1, 2, 5, 20])
        ids = [random_numbers.randrange(one.get_vocab_size() + 3) for _ in range(count)]
        decoded.append({"random": ids, "decoded": one.decode(ids, skip_special_tokens=False)})
    return lines + decoded


def pairs():
    """Of texts and pairs of texts, within limits, the ids and types that each kind of post-processor makes of them."""
    def text(name, type_id=0):
        return {"Sequence": {"id": name, "type_id": type_id}}

    def special(name, type_id=0):
        return {"SpecialToken": {"id": name, "type_id": type_id}}

    specials = {"<s>": {"id": "<s>", "ids": [1, 2], "tokens": ["<s>", "x"]},
                "</s>": {"id": "</s>", "ids": [3], "tokens": ["</s>"]}}
    template = part("TemplateProcessing", single=[special("<s>"), text("A")],
                    pair=[text("B", 1), special("</s>", 2), text("A"), special("<s>", 1)], special_tokens=specials)
    processors = {
        "none": None, "template": template, "bert": part("BertProcessing", sep=["x", 5], cls=["y", 6]),
        "roberta": part("RobertaProcessing", sep=["x", 5], cls=["y", 6], trim_offsets=True, add_prefix_space=False)}
    texts = [("the ab", None), ("the ab", ""), ("", "the ab"), ("abab", "abab"), ("the", "abababab abab"),
             ("abababab abab", "the"), ("the the the the", "ab ab ab ab ab")]
    for name, post in processors.items():
        described = tokenizer(post=post)
        one = Tokenizer.from_str(json.dumps(described))
        yield {"name": name, "tokenizer": described}
        for first, second in texts:
            for limit in (None, 4, 5, 8, 11):
                for direction in ("left", "right") if limit else ("right",):
                    one.no_truncation()
                    if limit:
                        one.enable_truncation(limit, direction=direction)
                    for adds in (False, True):
                        if limit and adds and limit < one.num_special_tokens_to_add(second is not None):
                            continue
                        found = one.encode(first, second, add_special_tokens=adds)
                        yield {"texts": [first] if second is None else [first, second], "limit": limit,
                               "left": direction == "left", "adds": adds, "ids": found.ids,
                               "types": found.type_ids}


def write_expected(path, one, seed):
    lines = [json.dumps(entry, separators=(",", ":")) for entry in expected(one, seed)]
    path.write_text("\n".join(lines) + "\n")


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    cases = {**normalizer_cases(), **pre_tokenizer_cases(), **other_cases(), **model_cases(), **unigram_cases()}
    for seed, (name, description) in enumerate(cases.items()):
        folder = OUT / name
        folder.mkdir(parents=True)
        text = json.dumps(description, separators=(",", ":"))
        (folder / "tokenizer.json").write_text(text + "\n")
        write_expected(folder / "expected.jsonl", Tokenizer.from_str(text), seed)
    write_expected(OUT / "quickstart.jsonl", Tokenizer.from_file(str(QUICKSTART)), 1000)
    lines = [json.dumps(entry, separators=(",", ":")) for entry in regular_expressions()]
    (OUT / "regular_expressions.jsonl").write_text("\n".join(lines) + "\n")
    lines = [json.dumps(entry, separators=(",", ":")) for entry in pairs()]
    (OUT / "pairs.jsonl").write_text("\n".join(lines) + "\n")
    lines = [json.dumps(entry, separators=(",", ":")) for entry in clusters()]
    (OUT / "clusters.jsonl").write_text("\n".join(lines) + "\n")
    (OUT / "scores.json").write_text(json.dumps(scores(), separators=(",", ":")) + "\n")
    (OUT / "lines.json").write_text(json.dumps(LINES, indent=0) + "\n")
    (OUT / "SOURCE.md").write_text(
        f"Made by scripts/goldens/make_tokenizer_goldens.py with tokenizers {tokenizers.__version__}.\n"
        "Nothing here comes from elsewhere.\n")


if __name__ == "__main__":
    main()
