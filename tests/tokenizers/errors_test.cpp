#include <gtest/gtest.h>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "support/errors.h"
#include "support/temporary_directory.h"
#include "tokenizers/tokenizer.h"

namespace automodel::tokenizers {
namespace {

constexpr const char* kModel =
    R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]})";

template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::string error_of_text(const std::string& text) {
  return error_of([&] { Tokenizer::from_json_text(text, "t.json"); });
}

/// The error of a tokenizer.json with this model.
std::string error_of_model(const std::string& model) {
  return error_of_text(R"({"version": "1.0", "model": )" + model + "}");
}

/// The error of a good model with one more section.
std::string error_of_section(const std::string& name, const std::string& json) {
  return error_of_text(cat("{\"model\": ", kModel, ", \"", name, "\": ", json, "}"));
}

TEST(TokenizerErrors, GoodFileHasNone) {
  EXPECT_EQ(error_of_model(kModel), "");
  EXPECT_EQ(error_of_section("normalizer", "null"), "");
}

TEST(TokenizerErrors, BrokenJsonIsPlaced) {
  EXPECT_EQ(
      error_of_text(""),
      "t.json: not valid JSON at byte 1: syntax error while parsing value - unexpected end of "
      "input; expected '[', '{', or a literal");
  EXPECT_EQ(error_of_text(R"({"model": {"type": "BPE", "vocab": {"a": 0,}}})"),
            "t.json: not valid JSON at byte 44: syntax error while parsing object key - unexpected "
            "'}'; expected string literal");
  EXPECT_EQ(error_of_text(std::string(300, '[')), "t.json: nested deeper than 100 levels");
}

TEST(TokenizerErrors, OtherDocumentsAreRefused) {
  EXPECT_EQ(error_of_text("[1]"), "t.json: expected an object, found an array");
  EXPECT_EQ(error_of_text(R"({"version": "2.0", "model": {}})"),
            "t.json: unknown version of tokenizer.json; known here: 1.0");
}

TEST(TokenizerErrors, MissingPartsOfTheModelAreNamed) {
  EXPECT_EQ(error_of_text("{}"), "t.json: 'model' is missing");
  EXPECT_EQ(error_of_model("3"), "t.json: model: expected an object, found an integer");
  EXPECT_EQ(error_of_model(R"({"type": "BPE"})"), "t.json: model (BPE): 'vocab' is missing");
  EXPECT_EQ(error_of_model(R"({"type": "BPE", "vocab": {}})"),
            "t.json: model (BPE): 'merges' is missing");
  EXPECT_EQ(error_of_model(R"({"type": "WordLevel", "vocab": {"a": 0}})"),
            "t.json: model (WordLevel): 'unk_token' is missing");
}

TEST(TokenizerErrors, UnknownModelIsNamed) {
  EXPECT_EQ(
      error_of_model(R"({"type": "BEP", "vocab": {}})"),
      "t.json: model: unknown component 'BEP'; did you mean 'BPE'?; known here: BPE, Unigram, "
      "WordPiece, WordLevel");
}

TEST(TokenizerErrors, WrongUnigramModelsAreRefused) {
  const auto error_with = [](const std::string& rest) {
    return error_of_model(cat(R"({"type": "Unigram", )", rest, "}"));
  };
  EXPECT_EQ(error_with(R"("unk_id": 0, "vocab": [["a", 0.0], ["a", -1]])"), "");
  EXPECT_EQ(error_with(R"("vocab": [])"), "");
  EXPECT_EQ(error_with(R"("unk_id": 0)"), "t.json: model (Unigram): 'vocab' is missing");
  EXPECT_EQ(error_with(R"("vocab": {"a": 0})"),
            "t.json: model (Unigram): vocab must be a list of tokens and scores");
  for (const char* id : {"2", "9223372036854775807"}) {
    EXPECT_EQ(error_with(cat(R"("unk_id": )", id, R"(, "vocab": [["a", 0.0], ["b", -1]])")),
              cat("t.json: model (Unigram): unk_id ", id,
                  " is out of range for a vocabulary of 2 tokens"));
  }
  EXPECT_EQ(error_with(R"("unk_id": 0, "vocab": [])"),
            "t.json: model (Unigram): unk_id 0 is out of range for a vocabulary of 0 tokens");
  for (const char* id : {"-1", "1.0", "\"a\"", "true"}) {
    EXPECT_EQ(error_with(cat(R"("unk_id": )", id, R"(, "vocab": [["a", 0.0]])")),
              "t.json: model (Unigram): unk_id must be a whole number, not negative");
  }
  for (const char* entry : {R"(["b"])", R"(["b", null])", R"([1, "b"])", R"(["b", 1, 2])", "7"}) {
    EXPECT_EQ(error_with(cat(R"("vocab": [["a", 0.0], )", entry, "]")).substr(0, 27),
              "t.json: model.vocab entry 2")
        << entry;
  }
  EXPECT_NE(error_with(R"("vocab": [["a", 1e400]])"), "");
}

TEST(TokenizerErrors, AUnigramModelWithoutUnknownFailsWhereItNeedsOne) {
  const Tokenizer tokenizer =
      Tokenizer::from_json_text(R"({"model": {"type": "Unigram", "unk_id": null,)"
                                R"( "vocab": [["a", -1], ["b", -1], ["cd", -1]]}})",
                                "t.json");
  EXPECT_EQ(tokenizer.encode("abba", false).size(), 4U);
  EXPECT_EQ(tokenizer.encode("", false).size(), 0U);
  for (const char* text : {"ac", "acd"}) {  // "cd" alone would do
    EXPECT_EQ(error_of([&] { tokenizer.encode(text, false); }),
              "t.json: model (Unigram): 'c' needs an unknown token, but there is no unk_id");
  }
}

std::string base64_of(const std::string& bytes) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (size_t k = 0; k < 4; ++k) {
      text.push_back(i + k > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * k) & 63]);
    }
  }
  return text;
}

/// The error of a charsmap with one rule: the unit of 'a' and that of its value say what it is.
std::string error_of_charsmap(uint32_t unit, uint32_t value, const std::string& texts) {
  std::string bytes = {0, 4, 0, 0};  // 256 units
  for (uint32_t i = 0; i < 256; ++i) {
    const uint32_t word = i == 'a' ? unit : i == 1 ? value : 0;
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(word >> shift));
  }
  return error_of_section("normalizer", cat(R"({"type": "Precompiled", "precompiled_charsmap": ")",
                                            base64_of(bytes + texts), "\"}"));
}

TEST(TokenizerErrors, WrongCharsmapsAreRefused) {
  const auto error_with = [](const std::string& charsmap) {
    return error_of_section(
        "normalizer", cat(R"({"type": "Precompiled", "precompiled_charsmap": )", charsmap, "}"));
  };
  const std::string where = "t.json: normalizer (Precompiled): precompiled_charsmap ";
  EXPECT_EQ(error_of_section("normalizer", R"({"type": "Precompiled"})"),
            "t.json: normalizer (Precompiled): 'precompiled_charsmap' is missing");
  EXPECT_EQ(error_with("null"), where + "must be a string, found null");
  for (const char* text : {"AAAA=", "AAA", "A===", "AAA\u00e9", "AA=A", "AAAAAB==", "AA A"}) {
    EXPECT_EQ(error_with(cat("\"", text, "\"")), where + "is not base64") << text;
  }
  EXPECT_EQ(error_with(R"("")"), where + "is malformed: it has no size of its trie");
  EXPECT_EQ(error_with(R"("AAAA")"), where + "is malformed: it has no size of its trie");
  EXPECT_EQ(error_with(R"("AAAAAA==")"), where + "is malformed: its trie is empty");
  EXPECT_EQ(error_with(R"("/////w==")"), where + "is malformed: its trie is cut off");
  EXPECT_EQ(error_with(R"("BAAAAAAAAAA=")"), where + "is malformed: its trie leads out of itself");
}

TEST(TokenizerErrors, RulesThatPointNowhereAreRefused) {
  constexpr uint32_t kKey = 'a' | 1U << 8 | ('a' ^ 1U) << 10;  // its value is at 1
  const std::string where = "t.json: normalizer (Precompiled): precompiled_charsmap is malformed: ";
  EXPECT_EQ(error_of_charsmap(kKey, 0, "\u00e9"), "");
  EXPECT_EQ(error_of_charsmap(kKey, 2, "\u00e9"), "");  // becomes nothing
  EXPECT_EQ(error_of_charsmap(kKey, 3, "\u00e9"),
            where + "a rule points to byte 3 of 2 bytes of texts");
  EXPECT_EQ(error_of_charsmap(kKey, 1, "\u00e9"),
            where + "a rule points to byte 1 of 2 bytes of texts, inside of a character");
  EXPECT_EQ(error_of_charsmap(kKey, 0, "\xC3"), where + "its texts are not UTF-8");
  EXPECT_EQ(error_of_charsmap(kKey | 1U << 20, 0, "x"), where + "its trie leads out of itself");
}

TEST(TokenizerErrors, DropoutIsRefusedUnlessZero) {
  EXPECT_EQ(error_of_model(R"({"type": "BPE", "dropout": 0.1, "vocab": {}, "merges": []})"),
            "t.json: model (BPE): dropout is not supported; set it to null");
  EXPECT_EQ(error_of_model(R"({"type": "BPE", "dropout": 0.0, "vocab": {}, "merges": []})"), "");
}

TEST(TokenizerErrors, WrongVocabulariesAreRefused) {
  const auto error_with = [](const std::string& vocab) {
    return error_of_model(cat(R"({"type": "BPE", "vocab": )", vocab, R"(, "merges": []})"));
  };
  for (const char* entry : {R"("x")", "1.5", "{}", "[]", "null"}) {
    EXPECT_EQ(error_with(cat(R"({"a": 0, "b": )", entry, "}")),
              "t.json: model.vocab entry 2 is not a token with its id")
        << entry;
  }
  for (const char* id : {"-1", "9999999999", "18446744073709551615"}) {
    EXPECT_EQ(error_with(cat(R"({"a": )", id, "}")),
              "t.json: token 'a' has an id out of range for a vocabulary of 1 tokens");
  }
  EXPECT_EQ(error_with(R"({"a": 0, "b": 0})"), "t.json: tokens 'a' and 'b' both have id 0");
  EXPECT_EQ(error_with(R"({"a": 0, "a": 1})"), "t.json: token 'a' is in the vocabulary twice");
  EXPECT_EQ(error_with(R"([["a", 0.5]])"),
            "t.json: model (BPE): vocab must be an object of tokens and ids");
}

TEST(TokenizerErrors, WrongMergesAreRefused) {
  const auto error_with = [](const std::string& merges) {
    return error_of_model(
        cat(R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [)", merges, "]}"));
  };
  for (const char* merge : {R"("a")", R"("a b c")", R"(["a"])", R"(["a", "b", "a"])", R"(["a", 1])",
                            R"({"a": "b"})", "7", "null"}) {
    for (const char* first : {R"("a b")", R"(["a", "b"])"}) {
      EXPECT_EQ(error_with(cat(first, ", ", merge)),
                "t.json: model.merges entry 2 is not a pair of tokens")
          << merge;
    }
  }
  EXPECT_EQ(error_with(R"("a b", ["a", "c"])"),
            "t.json: model.merges entry 2 ('a' 'c') needs the token 'c', which is not in the "
            "vocabulary");
  EXPECT_EQ(error_with(R"("b a")"),
            "t.json: model.merges entry 1 ('b' 'a') needs the token 'ba', which is not in the "
            "vocabulary");
}

TEST(TokenizerErrors, UnknownComponentsAreNamedWithTheirPlace) {
  EXPECT_EQ(
      error_of_section("normalizer", R"({"type": "Sequence", "normalizers": [{"type": "NFC"},)"
                                     R"({"type": "NFX"}]})"),
      "t.json: normalizer.normalizers[1]: unknown component 'NFX'; did you mean 'NFC'?; known "
      "here: NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Replace, Nmt, "
      "BertNormalizer, Precompiled, Prepend, ByteLevel, Sequence");
  EXPECT_EQ(
      error_of_section("pre_tokenizer", R"({"type": "Bytelevel"})"),
      "t.json: pre_tokenizer: unknown component 'Bytelevel'; did you mean 'ByteLevel'?; known "
      "here: ByteLevel, Split, Digits, Metaspace, Whitespace, WhitespaceSplit, Punctuation, "
      "BertPreTokenizer, CharDelimiterSplit, FixedLength, Sequence");
  EXPECT_EQ(error_of_section("post_processor", R"({"type": "Template"})"),
            "t.json: post_processor: unknown component 'Template'; known here: TemplateProcessing, "
            "ByteLevel, BertProcessing, RobertaProcessing, Sequence");
  EXPECT_EQ(error_of_section("decoder", R"({"type": "Fusee"})"),
            "t.json: decoder: unknown component 'Fusee'; did you mean 'Fuse'?; known here: "
            "ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, WordPiece, BPEDecoder, CTC, "
            "Sequence");
  EXPECT_EQ(error_of_section("normalizer", "3"),
            "t.json: normalizer: expected an object, found an integer");
  EXPECT_EQ(error_of_section("decoder", "{}"), "t.json: decoder: the component has no \"type\"");
}

TEST(TokenizerErrors, WrongMembersOfNormalizersAreNamed) {
  const auto error_with = [](const std::string& json) {
    return error_of_section("normalizer", json);
  };
  EXPECT_EQ(error_with(R"({"type": "Replace", "content": "x"})"),
            "t.json: normalizer (Replace): 'pattern' is missing");
  EXPECT_EQ(error_with(R"({"type": "Replace", "pattern": 3, "content": "x"})"),
            "t.json: normalizer (Replace): pattern must be {\"Regex\": ...} or {\"String\": ...}");
  EXPECT_EQ(error_with(R"({"type": "Sequence"})"),
            "t.json: normalizer (Sequence): 'normalizers' is missing");
  EXPECT_EQ(error_with(R"({"type": "Strip", "strip_left": 1})"),
            "t.json: normalizer (Strip): strip_left must be a boolean, found an integer");
}

TEST(TokenizerErrors, WrongMembersOfPreTokenizersAreNamed) {
  const auto error_with = [](const std::string& json) {
    return error_of_section("pre_tokenizer", json);
  };
  EXPECT_EQ(
      error_with(R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Away"})"),
      "t.json: pre_tokenizer (Split): unknown behavior 'Away'; known here: Removed, Isolated, "
      "MergedWithPrevious, MergedWithNext, Contiguous");
  EXPECT_EQ(error_with(R"({"type": "Metaspace", "replacement": "__"})"),
            "t.json: pre_tokenizer (Metaspace): replacement must be one character");
  EXPECT_EQ(error_with(R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"})"),
            "t.json: pre_tokenizer (Metaspace): unknown prepend_scheme 'last'; known here: first, "
            "never, always");
  EXPECT_EQ(error_with(R"({"type": "FixedLength", "length": 0})"),
            "t.json: pre_tokenizer (FixedLength): length must be at least 1");
  EXPECT_EQ(error_with(R"({"type": "CharDelimiterSplit"})"),
            "t.json: pre_tokenizer (CharDelimiterSplit): 'delimiter' is missing");
  EXPECT_EQ(error_with(R"({"type": "Sequence", "pretokenizers": {}})"),
            "t.json: pre_tokenizer (Sequence): pretokenizers must be a list, found an object");
}

TEST(TokenizerErrors, RegularExpressionsThatCannotBeUsedAreShown) {
  const std::vector<std::pair<std::string, std::string>> patterns = {
      {"(", "a group is not closed"},
      {"a)", "a ')' closes no group"},
      {"[a", "a character class is not closed"},
      {"*a", "nothing to repeat before '*'"},
      {"[[:nonsense:]]", "unknown class '[:nonsense:]'"},
      {"(?x)a", "the option 'x' is not supported"},
      {"(*FAIL)", "callouts '(*' are not supported"},
      {"\\X", "\\X is not supported"},
      {"\\k<a>", "\\k is not supported"},
      {"\\pL", "\\p is without {name}"},
      {"\\xff", "the single byte \\xff is no character of UTF-8"},
      {"\\p{Nonsense}", "unknown property after \\P or \\p at byte 16 of '[\\p{sc:Nonsense}]'"}};
  for (const auto& [pattern, reason] : patterns) {
    Json split = Json::object();
    split["type"] = Json("Split");
    split["pattern"]["Regex"] = Json(pattern);
    EXPECT_EQ(error_of_section("pre_tokenizer", split.dump()),
              cat("t.json: pre_tokenizer (Split): cannot use the regular expression '", pattern,
                  "': ", reason));
  }
}

TEST(TokenizerErrors, WrongMembersOfPostProcessorsAreNamed) {
  const auto error_with = [](const std::string& json) {
    return error_of_section("post_processor", json);
  };
  EXPECT_EQ(error_with(R"({"type": "TemplateProcessing", "single": "A", "special_tokens": {}})"),
            "t.json: post_processor (TemplateProcessing): single must be a list");
  EXPECT_EQ(error_with(R"({"type": "TemplateProcessing", "single": [{"SpecialToken": )"
                       R"({"id": "<s>"}}], "special_tokens": {}})"),
            "t.json: post_processor (TemplateProcessing): special_tokens lacks '<s>' or its ids");
  EXPECT_EQ(error_with(R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B"}}], )"
                       R"("special_tokens": {}})"),
            "t.json: post_processor (TemplateProcessing): single uses a sequence other than A");
  EXPECT_EQ(error_with(R"({"type": "BertProcessing", "sep": ["x"], "cls": ["y", 1]})"),
            "t.json: post_processor (BertProcessing): sep must be [token, id]");
  EXPECT_EQ(error_with(R"({"type": "RobertaProcessing", "sep": ["x", -1], "cls": ["y", 1]})"),
            "t.json: post_processor (RobertaProcessing): a token id must be a whole number, not "
            "negative");
  const std::string bert = R"({"type": "BertProcessing", "sep": ["x", 1], "cls": ["y", 1]})";
  EXPECT_EQ(error_with(cat(R"({"type": "Sequence", "processors": [)", bert, ", ", bert, "]}")),
            "t.json: post_processor.processors[1] (BertProcessing): a second processor that adds "
            "tokens is not supported");
}

TEST(TokenizerErrors, WrongMembersOfDecodersAreNamed) {
  const auto error_with = [](const std::string& json) { return error_of_section("decoder", json); };
  EXPECT_EQ(error_with(R"({"type": "Strip", "content": "", "start": 1})"),
            "t.json: decoder (Strip): content must be one character");
  EXPECT_EQ(error_with(R"({"type": "Strip", "content": "a", "start": -1})"),
            "t.json: decoder (Strip): start must be a whole number, not negative");
  EXPECT_EQ(error_with(R"({"type": "Replace", "pattern": {"String": "a"}})"),
            "t.json: decoder (Replace): 'content' is missing");
  EXPECT_EQ(error_with(R"({"type": "WordPiece", "prefix": 3})"),
            "t.json: decoder (WordPiece): prefix must be a string, found an integer");
}

TEST(TokenizerErrors, WrongAddedTokensAreNamed) {
  const auto error_with = [](const std::string& json) {
    return error_of_section("added_tokens", json);
  };
  EXPECT_EQ(error_with("{}"), "t.json: added_tokens must be a list, found an object");
  for (const char* entry : {"3", R"({"id": 3})", R"({"content": 3})"}) {
    EXPECT_EQ(error_with(cat("[", entry, "]")),
              "t.json: added_tokens: an added token must be an object with a \"content\"");
  }
  EXPECT_EQ(error_with(R"([{"content": "x", "special": "yes"}])"),
            "t.json: added_tokens: special of the added token 'x' must be a boolean, found a "
            "string");
}

TEST(TokenizerErrors, TextThatIsNoUtf8IsRefused) {
  const Tokenizer tokenizer = Tokenizer::from_json_text(cat("{\"model\": ", kModel, "}"), "t.json");
  for (const char* text :
       {"a\xff", "a\xc0\x80", "a\xed\xa0\x80", "a\xf4\x90\x80\x80", "a\xe4\xb8"}) {
    EXPECT_EQ(error_of([&] { tokenizer.encode(text, false); }),
              "cannot tokenize a text that is not UTF-8 (at byte 1)");
  }
}

TEST(TokenizerErrors, UnknownTokenThatIsMissingIsNamedWhenNeeded) {
  for (const char* model :
       {R"({"type": "BPE", "unk_token": "<unk>", "vocab": {"a": 0}, "merges": []})",
        R"({"type": "WordLevel", "unk_token": "<unk>", "vocab": {"a": 0}})",
        R"({"type": "WordPiece", "unk_token": "<unk>", "vocab": {"a": 0}})"}) {
    const Tokenizer tokenizer =
        Tokenizer::from_json_text(cat("{\"model\": ", model, "}"), "t.json");
    EXPECT_EQ(tokenizer.encode("a", false), std::vector<int64_t>{0});
    EXPECT_EQ(error_of([&] { tokenizer.encode("b", false); }),
              "the tokenizer's unk_token '<unk>' is not in its vocabulary");
  }
}

TEST(TokenizerErrors, FoldersWithoutTokenizerAreNamed) {
  const test::TemporaryDirectory folder;
  EXPECT_EQ(error_of([&] { Tokenizer::load(folder.path()); }),
            folder.path() + ": there is no tokenizer.json in this folder");
  EXPECT_EQ(error_of([&] { Tokenizer::load(folder.file("none")); }),
            folder.file("none") + ": there is no such folder");
}

TEST(TokenizerErrors, ASentencePieceModelAloneIsNotBuilt) {
  const test::TemporaryDirectory folder;
  write_file_atomic(folder.file("tokenizer.model"), "");
  EXPECT_EQ(test::error_of<UnsupportedError>([&] { Tokenizer::load(folder.path()); }),
            folder.path() +
                ": its tokenizer is tokenizer.model, a SentencePiece model, which is not in this "
                "version; tokenizer.json is read");
}

}  // namespace
}  // namespace automodel::tokenizers
