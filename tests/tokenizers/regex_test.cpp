#include "tokenizers/regex.h"

#include <gtest/gtest.h>

#include <iterator>
#include <random>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "support/temporary_directory.h"
#include "tokenizers/unicode.h"

namespace automodel::tokenizers {
namespace {

std::string data(const std::string& name) {
  return test::source_file("tests/tokenizers/data/" + name);
}

std::vector<Json> entries(const std::string& name) {
  std::vector<Json> list;
  const std::string text = read_file(data(name));
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = text.find('\n', begin);
    list.push_back(Json::parse(std::string_view(text).substr(begin, end - begin), name));
  }
  return list;
}

int64_t num_characters(std::string_view text) {
  int64_t count = 0;
  for (size_t i = 0; i < text.size(); ++count) next_code_point(text, i);
  return count;
}

TEST(Regex, CutsLinesAsOniguruma) {
  const Json lines = Json::parse_file(data("lines.json"));
  for (const Json& entry : entries("regular_expressions.jsonl")) {
    const Json* ends_of_lines = entry.find("ends");
    if (ends_of_lines == nullptr) continue;
    const std::string& pattern = entry.at("pattern").as_string();
    const Regex regex = Regex::from_pattern(pattern, "test");
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::string& line = lines.as_array()[i].as_string();
      std::vector<Match> matches;
      regex.find_all(line, matches);
      Json ends = Json::array();
      for (const Match& match : matches) {
        if (match.begin == match.end) continue;
        ends.push_back(Json(num_characters(std::string_view(line).substr(0, match.end))));
      }
      EXPECT_EQ(ends.dump(), ends_of_lines->as_array().at(i).dump())
          << pattern << " on line " << i << ": " << line;
    }
  }
}

TEST(Regex, ClassesHoldTheCharactersOfOnigurumas) {
  std::string sample;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    if (c < 0x3400 || c % 61 == 0) append_utf8(sample, c);
  }
  for (const Json& entry : entries("regular_expressions.jsonl")) {
    if (!entry.contains("count")) continue;
    const std::string& pattern = entry.at("pattern").as_string();
    std::vector<Match> matches;
    Regex::from_pattern(pattern, "test").find_all(sample, matches);
    int64_t count = 0;
    int64_t sum = 0;
    for (const Match& match : matches) {
      if (!match.is_match) continue;
      for (size_t i = match.begin; i < match.end; ++count) sum += next_code_point(sample, i);
    }
    EXPECT_EQ(count, entry.at("count").as_int()) << pattern;
    EXPECT_EQ(sum, entry.at("sum").as_int()) << pattern;
  }
}

std::vector<std::string> pieces_of(const std::string& pattern, const std::string& text) {
  std::vector<Match> matches;
  Regex::from_pattern(pattern, "test").find_all(text, matches);
  std::vector<std::string> pieces;
  for (const Match& match : matches) {
    pieces.push_back(
        cat(match.is_match ? "" : "not: ", text.substr(match.begin, match.end - match.begin)));
  }
  return pieces;
}

// Words of ASCII letters are found without the pattern where it is known to take them whole; in
// brackets a pattern is not known.
TEST(Regex, CutsWordsOfAsciiLettersAsThePatternDoes) {
  const std::string rest = R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string patterns[] = {
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
      R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+)" +
          rest,
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+)" + rest,
      R"(\p{N}| ?\p{L}+)",
      " ?\\p{L}+",
      // And some that do not take them whole.
      R"(\p{N}| ?\p{L}+?)",
      R"( ?\p{L}+ly| ?\p{L}+)",
      R"(\p{L}{1,2}| ?\p{L}+)",
  };
  constexpr const char* kParts[] = {"a", "Zq",   "ly", " ",      "  ", "'s", "'LL", "don't",
                                    "7", "1234", "\n", "\t",     "é",  "ß",  "語",  ".",
                                    "(", "-",    "_",  "\u0301", "@",  "[",  "`",   "{"};
  std::mt19937 random(7);
  for (const std::string& pattern : patterns) {
    for (int round = 0; round < 200; ++round) {
      std::string text;
      for (int i = 0; i < 30; ++i) text += kParts[random() % std::size(kParts)];
      EXPECT_EQ(pieces_of(pattern, text), pieces_of("(?:" + pattern + ")", text)) << pattern;
    }
  }
}

TEST(Regex, LiteralsAreNoPatterns) {
  std::vector<Match> matches;
  Regex::from_literal(".*", "test").find_all("a.*b", matches);
  ASSERT_EQ(matches.size(), 3u);
  EXPECT_EQ(matches[1].begin, 1u);
  EXPECT_EQ(matches[1].end, 3u);
}

}  // namespace
}  // namespace automodel::tokenizers
