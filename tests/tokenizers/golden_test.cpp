#include <gtest/gtest.h>

#include <optional>
#include <ostream>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "support/temporary_directory.h"
#include "tokenizers/document.h"
#include "tokenizers/tokenizer.h"

namespace automodel::tokenizers {
namespace {

std::string data(const std::string& name) {
  return test::source_file("tests/tokenizers/data/" + name);
}

std::vector<int64_t> ids_of(const Json& list) {
  std::vector<int64_t> ids;
  for (const Json& id : list.as_array()) ids.push_back(id.as_int());
  return ids;
}

/// The first special token that encoding a text gives.
std::optional<int64_t> first_special(const Tokenizer& tokenizer, const std::string& text) {
  for (const int64_t id : tokenizer.encode(text, false)) {
    if (tokenizer.is_special(id)) return id;
  }
  return std::nullopt;
}

/// Compares with what scripts/goldens/make_tokenizer_goldens.py wrote: an entry for each line of
/// lines.json, then entries of random ids.
void expect_as_reference(const Tokenizer& tokenizer, const std::string& expected) {
  const Json lines = Json::parse_file(data("lines.json"));
  size_t number = 0;
  const std::string text = read_file(expected);
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1, ++number) {
    end = text.find('\n', begin);
    const Json entry = Json::parse(std::string_view(text).substr(begin, end - begin), expected);
    SCOPED_TRACE(cat(expected, ":", number + 1));
    if (const Json* random = entry.find("random")) {
      EXPECT_EQ(tokenizer.decode(ids_of(*random), false), entry.at("decoded").as_string());
      continue;
    }
    const std::string line = lines.as_array().at(number).as_string();
    const std::vector<int64_t> ids = ids_of(entry.at("ids"));
    EXPECT_EQ(tokenizer.encode(line, false), ids);
    EXPECT_EQ(tokenizer.find_special(line), first_special(tokenizer, line));
    const Json* with_specials = entry.find("ids_special");
    EXPECT_EQ(tokenizer.encode(line, true),
              with_specials == nullptr ? ids : ids_of(*with_specials));
    const Json* other = entry.find("decoded");
    const std::string decoded = other == nullptr ? line : other->as_string();
    EXPECT_EQ(tokenizer.decode(ids, false), decoded);
    const Json* without = entry.find("decoded_skip_special");
    EXPECT_EQ(tokenizer.decode(ids, true), without == nullptr ? decoded : without->as_string());
  }
  EXPECT_GT(number, lines.size());
}

class Components : public testing::TestWithParam<std::string> {};

TEST_P(Components, EncodeAndDecodeAsTheReference) {
  const std::string path = data(GetParam() + "/tokenizer.json");
  const Tokenizer tokenizer = Tokenizer::from_json_text(read_file(path), path);
  expect_as_reference(tokenizer, data(GetParam() + "/expected.jsonl"));
}

TEST_P(Components, FindsSpecialTokensThatATextBecomes) {
  const std::string path = data(GetParam() + "/tokenizer.json");
  const Tokenizer tokenizer = Tokenizer::from_json_text(read_file(path), path);
  for (int64_t id = 0; id < tokenizer.id_bound(); ++id) {
    const std::string token(tokenizer.id_to_token(id).value_or(""));
    for (const std::string& text : {token, cat("a ", token), cat(token, "\u4E2D", token)}) {
      try {
        EXPECT_EQ(tokenizer.find_special(text), first_special(tokenizer, text)) << text;
      } catch (const InputError&) {  // needs an unknown token that is not there
      }
    }
  }
}

TEST(TokenizerTest, FindsTheUnknownTokenWhereATextBecomesIt) {
  const test::TemporaryDirectory directory;
  for (const char* name : {"model_bpe_unknown", "model_bpe_fused_unknown",
                           "model_bpe_bytes_or_unknown", "model_word_piece"}) {
    const Json document = Json::parse_file(data(cat(name, "/tokenizer.json")));
    directory.write("tokenizer.json", document.dump());
    directory.write(
        "tokenizer_config.json",
        cat(R"({"unk_token": ")", document.at("model").at("unk_token").as_string(), "\"}"));
    const Tokenizer tokenizer = Tokenizer::load(directory.path());
    ASSERT_TRUE(tokenizer.unk()) << name;
    EXPECT_EQ(tokenizer.find_special("\u4E2D"), first_special(tokenizer, "\u4E2D")) << name;
    EXPECT_EQ(tokenizer.find_special("\u4E2D"), tokenizer.unk()->id) << name;
  }
}

TEST(TokenizerTest, EncodesPairsWithinLimitsAsTheReference) {
  std::optional<Tokenizer> tokenizer;
  std::string name;
  int num_compared = 0;
  for (const std::string& line : split(read_file(data("pairs.jsonl")), '\n')) {
    if (line.empty()) continue;
    const Json entry = Json::parse(line, "pairs.jsonl");
    if (const Json* described = entry.find("tokenizer")) {
      name = entry.at("name").as_string();
      tokenizer = Tokenizer::from_json_text(described->dump(), name);
      continue;
    }
    SCOPED_TRACE(cat(name, ": ", line));
    const Json::Array& texts = entry.at("texts").as_array();
    TextAndPair input{texts[0].as_string()};
    if (texts.size() > 1) input.pair = texts[1].as_string();
    std::optional<TokenLimit> limit;
    if (!entry.at("limit").is_null()) {
      limit = TokenLimit{entry.at("limit").as_int(), entry.at("left").as_bool()};
    }
    const TypedIds found = tokenizer->encode(input, entry.at("adds").as_bool(), limit);
    EXPECT_EQ(found.ids, ids_of(entry.at("ids")));
    EXPECT_EQ(found.types, ids_of(entry.at("types")));
    ++num_compared;
  }
  EXPECT_GT(num_compared, 400);
}

TEST(TokenizerTest, ReadsScoresAsTheReference) {
  const Json scores = Json::parse_file(data("scores.json"));
  std::string vocab;
  for (const Json& score : scores.as_array()) {
    vocab += cat(vocab.empty() ? "" : ",", R"(["t",)", score.as_array()[0].as_string(), "]");
  }
  const Document document = read_document(cat(R"({"model": {"vocab": [)", vocab, "]}}"), "t.json");
  ASSERT_EQ(document.scores.size(), scores.size());
  int num_rounded_otherwise = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    const Json::Array& score = scores.as_array()[i].as_array();
    EXPECT_EQ(document.scores[i], score[1].as_double()) << score[0].as_string();
    num_rounded_otherwise += document.scores[i] != document.nearest_scores[i];
  }
  EXPECT_GT(num_rounded_otherwise, 30);
}

TEST(TokenizerTest, LooksUpGraphemeClustersAsTheReference) {
  std::optional<Tokenizer> tokenizer;
  int num_compared = 0;
  for (const std::string& line : split(read_file(data("clusters.jsonl")), '\n')) {
    if (line.empty()) continue;
    const Json entry = Json::parse(line, "clusters.jsonl");
    if (const Json* normalizer = entry.find("normalizer")) {
      tokenizer = Tokenizer::from_json_text(
          cat(R"({"model": {"type": "Unigram", "vocab": []}, "normalizer": )", normalizer->dump(),
              "}"),
          "clusters.jsonl");
      continue;
    }
    EXPECT_EQ(tokenizer->normalized(entry.at("text").as_string()),
              entry.at("normalized").as_string())
        << line;
    ++num_compared;
  }
  EXPECT_EQ(num_compared, 500);
}

TEST(TokenizerTest, DividesALongPieceInTimeThatGrowsWithItsLength) {
  const Tokenizer tokenizer = Tokenizer::from_json_text(
      R"({"model": {"type": "Unigram", "unk_id": 0,)"
      R"( "vocab": [["<unk>", 0], ["a", -1], ["aaaa", -1.5], ["b", -3]]}})",
      "t.json");
  std::string text(1'000'001, 'a');
  EXPECT_EQ(tokenizer.encode(text, false).size(), 250'001U);
  text.assign(1'000'000, '?');
  EXPECT_EQ(tokenizer.encode(cat(text, "b"), false), (std::vector<int64_t>{0, 3}));
}

TEST(TokenizerTest, RefusesALimitBelowTheSpecialTokensAlone) {
  const std::string path = data("post_roberta/tokenizer.json");
  const Tokenizer tokenizer = Tokenizer::from_json_text(read_file(path), path);
  EXPECT_EQ(tokenizer.encode({"ab", "ab"}, true, TokenLimit{4}).ids.size(), 4);
  EXPECT_THROW(tokenizer.encode({"ab", "ab"}, true, TokenLimit{3}), InputError);
}

/// The folders that scripts/goldens/make_tokenizer_goldens.py made.
std::vector<std::string> folders() {
  std::vector<std::string> names;
  for (const std::string& name : list_directory(data("."))) {
    if (is_directory(data(name))) names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Components, testing::ValuesIn(folders()),
                         [](const auto& info) { return info.param; });

TEST(Quickstart, EncodesAndDecodesAsTheReference) {
  const Tokenizer tokenizer = Tokenizer::load(test::source_file("configs/quickstart_tokenizer"));
  expect_as_reference(tokenizer, data("quickstart.jsonl"));
}

TEST(Quickstart, NamesItsSpecialTokens) {
  const Tokenizer tokenizer = Tokenizer::load(test::source_file("configs/quickstart_tokenizer"));
  ASSERT_TRUE(tokenizer.eos() && tokenizer.pad());
  EXPECT_EQ(tokenizer.eos()->text, "<|endoftext|>");
  EXPECT_EQ(tokenizer.pad()->text, "<|pad|>");
  EXPECT_TRUE(tokenizer.is_special(tokenizer.eos()->id));
  EXPECT_EQ(tokenizer.find_special("ends here.<|endoftext|> <|pad|>"), tokenizer.eos()->id);
  EXPECT_EQ(tokenizer.find_special("<| endoftext |>"), std::nullopt);
  EXPECT_EQ(tokenizer.decode(std::vector<int64_t>{tokenizer.eos()->id}, true), "");
  EXPECT_TRUE(tokenizer.chat_template());
}

TEST(Quickstart, DecodingGivesTheTextBack) {
  const Tokenizer tokenizer = Tokenizer::load(test::source_file("configs/quickstart_tokenizer"));
  const Json lines = Json::parse_file(data("lines.json"));
  for (const Json& line : lines.as_array()) {
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(line.as_string(), false), false), line.as_string());
  }
}

}  // namespace
}  // namespace automodel::tokenizers
