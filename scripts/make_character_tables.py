#!/usr/bin/env python3
"""Makes src/tokenizers/character_tables.cpp: the characters as the Hugging Face tokenizers library classes
them. Its parts follow different versions of Unicode, which no library of ours knows all at once.

Run with Python 3.11 (Unicode 14, as PCRE2 10.42) that has tokenizers 0.23:
  python scripts/make_character_tables.py
"""

import pathlib
import struct
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

from character_ranges import ranges

OUT = pathlib.Path(__file__).resolve().parent.parent / "src" / "tokenizers" / "character_tables.cpp"
CHARACTERS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Cf".split()


def matched(pattern, characters):
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    return {c for c in characters if not split.pre_tokenize_str(chr(c))}


def classes():
    punctuation = pre_tokenizers.Punctuation("removed")
    digits = pre_tokenizers.Digits(True)
    words = pre_tokenizers.Whitespace()
    accents = normalizers.StripAccents()
    bert_accents = normalizers.BertNormalizer(False, False, True, False)
    bert_controls = normalizers.BertNormalizer(True, False, False, False)
    tests = {
        "kPunctuation": lambda c: not punctuation.pre_tokenize_str(c),
        "kNumeric": lambda c: len(digits.pre_tokenize_str("a" + c + "a")) == 3,
        "kWord": lambda c: len(words.pre_tokenize_str("a" + c + "a")) == 1,
        "kCombiningMark": lambda c: accents.normalize_str(c) == "",
        "kNonspacingMark": lambda c: bert_accents.normalize_str("x" + c) == "x",
        "kOther": lambda c: c in "\t\n\r" or (c != "\ufffd" and bert_controls.normalize_str("x" + c) == "x"),
    }
    return {name: ranges(c for c in CHARACTERS if test(chr(c))) for name, test in tests.items()}


def unknown_to_normal_forms(newer):
    """What decomposes, composes or is moved in newer Unicode, but not in the library's normal forms."""
    forms = {name: getattr(normalizers, name)().normalize_str for name in ("NFC", "NFD", "NFKC", "NFKD")}
    # U+11A7 is no trailing consonant, but utf8proc composes it with the syllable before it.
    unknown = {*newer, 0x11A7}
    for c in CHARACTERS:
        if unicodedata.category(chr(c)) == "Cn":
            continue
        for text in (chr(c), "a\u0315" + chr(c) + "\u0323z"):
            if any(unicodedata.normalize(name, text) != form(text) for name, form in forms.items()):
                unknown.add(c)
                unknown.update(map(ord, unicodedata.normalize("NFD", chr(c))))
    return ranges(sorted(unknown))


def newer_characters():
    """{character that Unicode 14 lacks: the nearest one like it that Unicode 14 has}"""
    unassigned = [c for c in CHARACTERS if unicodedata.category(chr(c)) == "Cn"]
    newer = sorted(set(unassigned) - matched(r"\p{Cn}", unassigned))
    category = {c: name for name in CATEGORIES for c in matched(rf"\p{{{name}}}", newer)}
    names = ("Alphabetic", "Lowercase", "Han", "Hiragana", "Emoji")
    traits = [matched(rf"\p{{{name}}}", CHARACTERS) for name in names]

    def kind(c, name):
        return name, len(chr(c).encode()), *(c in trait for trait in traits)

    known = {}
    for c in CHARACTERS:
        name = unicodedata.category(chr(c))
        if name != "Cn":
            known.setdefault(kind(c, name), []).append(c)
    result = {}
    for c in newer:
        wanted = kind(c, category[c])
        alike = {k: sum(a == b for a, b in zip(k, wanted)) for k in known if k[:2] == wanted[:2]}
        like = known[max(alike, key=alike.get)]
        result[c] = min(like, key=lambda other: abs(other - c))
    return result


def stand_in_ranges(stand_ins):
    result = []
    for c, other in sorted(stand_ins.items()):
        if result and result[-1][1] == c - 1 and result[-1][2] == other:
            result[-1][1] = c
        else:
            result.append([c, c, other])
    return result


def newer_lower_case():
    """Ranges of newer capitals with the lower case of each one's first character."""
    lower = normalizers.Lowercase().normalize_str
    result = []
    for c in CHARACTERS:
        if unicodedata.category(chr(c)) != "Cn" or lower(chr(c)) == chr(c):
            continue
        small = ord(lower(chr(c)))
        if result and result[-1][1] == c - 1 and result[-1][2] + c - result[-1][0] == small:
            result[-1][1] = c
        else:
            result.append([c, c, small])
    return result


def charsmap_that_ends_at(byte):
    """A Precompiled normalizer that turns everything up to the first such byte of what it looks up into "!": a
    cluster of few bytes as a whole, so that the rest of it is lost, or a single character."""
    units = [0] + [c << 10 | c for c in range(1, 256)]
    units[byte] |= 1 << 8
    charsmap = struct.pack("<257I", 4 * len(units), *units) + b"!\0"
    return normalizers.Precompiled(charsmap).normalize_str


def cluster_classes():
    """{character: its part in grapheme clusters}, of those that have one and of which it can be seen: clusters of 6
    bytes or more are looked up character by character, as clusters of one character are."""
    at_a = charsmap_that_ends_at(ord("a"))
    at_accent = charsmap_that_ends_at(0xCC)  # U+0301 begins with it

    def is_joined(before, last):
        """Whether the last character belongs to what is before it: else it and the accent behind it are lost."""
        return at_accent(before + last + "\u0301") == before + last + "!"

    def marks(c):
        if is_joined("\u0915" + c, "\u0915"):
            return "kLinker"
        if is_joined("\u0915\u094d" + c, "\u0915"):
            return "kExtend"
        return "kExtendOnly" if is_joined("\u00a9" + c + "\u200d", "\u00a9") else "kSpacing"

    def other(c):
        if is_joined(c + "\u094d", "\u0915"):
            return "kConsonant"
        if is_joined(c + "\u200d", "\u00a9"):
            return "kPictographic"
        if len(c.encode()) < 4 and at_accent(c + "\u0301") == c + "!":
            return "kControl"
        hangul = tuple(is_joined(c, last) for last in ("\u1100", "\u1161", "\u11a8"))
        return {(True, True, False): "kLead", (False, True, True): "kVowel", (False, False, True): "kTail"}.get(hangul)

    result = {0x200D: "kJoiner"}
    for number in CHARACTERS[1:]:
        c = chr(number)
        if number in result or 0xAC00 <= number <= 0xD7A3 or c == "a":
            continue
        if 0x300 <= number <= 0x33F:
            result[number] = "kExtend"  # they begin with 0xCC too
        elif at_a("a" + c) == "!":
            result[number] = marks(c)
        elif at_a(c + "a") == "!":
            result[number] = "kPrepend"
        elif kind := other(c):
            result[number] = kind
    return result


def class_ranges(classes):
    result = []
    for c, kind in sorted(classes.items()):
        if result and result[-1][1] == c - 1 and result[-1][2] == kind:
            result[-1][1] = c
        else:
            result.append([c, c, kind])
    return result


def lines(entries):
    line = " "
    for entry in entries:
        text = " {" + ", ".join(c if isinstance(c, str) else f"0x{c:X}" for c in entry) + "},"
        if len(line) + len(text) > 100:
            yield line
            line = " "
        line += text
    yield line


def main():
    newer = newer_characters()
    tables = classes()
    tables["kUnknownToNormalForms"] = unknown_to_normal_forms(newer)
    text = [
        f"// Made by scripts/make_character_tables.py with tokenizers {tokenizers.__version__} and Unicode "
        f"{unicodedata.unidata_version}.",
        '#include "tokenizers/character_tables.h"',
        "",
        "namespace automodel::tokenizers::tables {",
        "",
        "namespace {",
        "// clang-format off",
    ]
    for name, table in tables.items():
        text += [f"constexpr CharacterRange {name}Ranges[] = {{", *lines(table), "};"]
    stand_ins = {"kNewerCharacters": stand_in_ranges(newer), "kNewerLowerCase": newer_lower_case()}
    for name, table in stand_ins.items():
        text += [f"constexpr StandIn {name}Ranges[] = {{", *lines(table), "};"]
    clusters = class_ranges(cluster_classes())
    text += ["using enum ClusterClass;", "constexpr ClusterRange kClusterClassRanges[] = {", *lines(clusters), "};"]
    text += ["// clang-format on", "}  // namespace", ""]
    for name in tables:
        text.append(f"const std::span<const CharacterRange> {name} = {name}Ranges;")
    for name in stand_ins:
        text.append(f"const std::span<const StandIn> {name} = {name}Ranges;")
    text.append("const std::span<const ClusterRange> kClusterClasses = kClusterClassRanges;")
    text += ["", "}  // namespace automodel::tokenizers::tables", ""]
    OUT.write_text("\n".join(text))


if __name__ == "__main__":
    main()
