#include "core/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/json_watch.h"

namespace automodel {
namespace {

TEST(JsonTest, KeepsTheOrderOfMembers) {
  const Json json = Json::parse(R"({"b": 1, "a": [true, null, "x"]})", "t");
  EXPECT_EQ(json.dump(), R"({"b": 1, "a": [true, null, "x"]})");
}

TEST(JsonTest, ReadsBareAndSpelledOutInfinity) {
  const Json json =
      Json::parse(R"({"a": Infinity, "b": -Infinity, "c": {"__float__": "Infinity"}, "d": NaN,
                      "e": "Infinity"})",
                  "t");
  EXPECT_TRUE(std::isinf(json.at("a").as_double()));
  EXPECT_LT(json.at("b").as_double(), 0);
  EXPECT_TRUE(std::isinf(json.at("c").as_double()));
  EXPECT_TRUE(std::isnan(json.at("d").as_double()));
  EXPECT_EQ(json.at("e").as_string(), "Infinity");
}

TEST(JsonTest, TheLastOfDuplicateKeysWins) {
  EXPECT_EQ(Json::parse(R"({"a": 1, "a": 2})", "t").at("a").as_int(), 2);
}

TEST(JsonTest, NamesTheFileAndByteOfAnError) {
  try {
    Json::parse("{\"a\": }", "config.json");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()).substr(0, 38), "config.json: not valid JSON at byte 7:");
  }
}

TEST(JsonTest, RefusesTextThatEndsInsideACharacter) {
  for (const char* text : {"\"\xC3", "\"\xE8\xAA", "\"\xF0\x9F\x98", "[\"\xF0", "\xF0"}) {
    EXPECT_THROW(Json::parse(text, "t"), InputError) << text;
  }
}

TEST(JsonTest, RefusesTextBehindAZeroByte) {
  try {
    Json::parse(std::string_view("{}\0{}", 5), "config.json");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "config.json: not valid JSON at byte 3: a zero byte");
  }
}

TEST(JsonTest, RefusesBottomlessNesting) {
  EXPECT_THROW(Json::parse(std::string(100000, '['), "t"), InputError);
}

TEST(JsonTest, NestsFiveHundredAndTwelveLevelsAndNoMore) {
  const auto nested = [](size_t levels) {
    return Json::parse(std::string(levels, '[') + std::string(levels, ']'), "t");
  };
  const Json deepest = nested(512);
  size_t levels = 0;
  for (const Json* at = &deepest; at->size() > 0; at = &at->as_array()[0]) ++levels;
  EXPECT_EQ(levels, 511);
  EXPECT_THROW(nested(513), InputError);
}

// Most texts are read by one library, and what that refuses by another; what is taken, and the
// values, are the second's.
TEST(JsonTest, ReadsAndRefusesWhatItsStricterReaderDoes) {
  const std::string long_text(200 << 10, 'x');
  // clang-format off
  const std::vector<std::string> texts = {
      "0", "-0", "-0.0", "1E5", "1e-400", "0.1", "123456789.123456789e-20", "4.9e-324",
      "1.7976931348623157e308", "1e400", "9223372036854775807", "9223372036854775808",
      "-9223372036854775808", "-9223372036854775809", "18446744073709551615",
      "18446744073709551616", "01", "1.", "+1", ".5", "1 2", "", " ", "nul", "true", "[1,]",
      "[]", "{}", "{\"a\": 1,}", "{\"a\" 1}", R"("\ud83d\ude00\u00e9\n\/")", R"("\udc00")",
      R"("\ud800")", R"("\ud800\u0041")", R"("\x")", R"("a\u0000b")", "\"\x01\"",
      "\"\xED\xA0\x80\"", "\"\xC3\xA9\"", "\"\xC3\"", "\xEF\xBB\xBF[1]", "{}\n",
      "\"" + long_text + "\"", "[\"" + long_text + "\"",
      R"([{"a": {"b": [1.5, null, false]}}])"};
  // clang-format on
  for (const std::string& text : texts) {
    const auto shown = text.substr(0, 40);
    const auto expected = nlohmann::json::parse(text, nullptr, false);
    if (expected.is_discarded()) {
      EXPECT_THROW(Json::parse(text, "t"), InputError) << shown;
      continue;
    }
    const Json value = Json::parse(text, "t");
    EXPECT_EQ(nlohmann::json::parse(value.dump()), expected) << shown;
    EXPECT_EQ(value.is_int(),
              expected.is_number_integer() &&
                  (!expected.is_number_unsigned() || expected.get<uint64_t>() <= INT64_MAX))
        << shown;
  }
}

TEST(JsonTest, WritesDoublesAsPythonDoes) {
  EXPECT_EQ(Json(1.0).dump(), "1.0");
  EXPECT_EQ(Json(1e-05).dump(), "1e-05");
  EXPECT_EQ(Json(0.1).dump(), "0.1");
}

TEST(JsonTest, KnowsIntegersThatItCannotHold) {
  for (const char* text : {"9223372036854775808", "-9223372036854775809", "18446744073709551615",
                           "123456789012345678901234567890"}) {
    const Json json = Json::parse(text, "t");
    EXPECT_TRUE(json.is_big_integer() && json.is_double() && !json.is_int()) << text;
    EXPECT_EQ(json.as_double(), std::stod(text));
    EXPECT_STREQ(json.kind(), "an integer");
    EXPECT_THROW(json.as_int(), InputError);
    // The stricter reader, which other texts make necessary.
    EXPECT_EQ(Json::parse(std::string(R"(["\ud83d\ude00", )") + text + "]", "t").as_array()[1],
              json);
  }
  for (const char* text : {"9223372036854775807", "-9223372036854775808"}) {
    EXPECT_TRUE(Json::parse(text, "t").is_int()) << text;
  }
  for (const char* text : {"1e30", "123456789012345678901234567890.0"}) {
    EXPECT_FALSE(Json::parse(text, "t").is_big_integer()) << text;
  }
}

TEST(JsonTest, NamesTheKeyOfAWrongKind) {
  const Json json = Json::parse(R"({"n": "x"})", "t");
  try {
    json.get("n", 3);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "key 'n': expected an integer, found a string");
  }
}

TEST(JsonTest, AWatchSeesWhatIsLookedUp) {
  const Json json = Json::parse(R"({"a": {"b": 1}, "c": 2})", "text");
  json.find("before");
  const JsonWatch watch;
  EXPECT_EQ(json.get("c", 0), 2);
  EXPECT_EQ(json.at("a").find("absent"), nullptr);
  {
    const JsonWatch inner;
    json.find("of the inner one");
    EXPECT_TRUE(inner.has_seen("of the inner one"));
  }
  json.find("after it");
  for (const char* seen : {"c", "a", "absent", "after it"})
    EXPECT_TRUE(watch.has_seen(seen)) << seen;
  for (const char* other : {"before", "b", "of the inner one"})
    EXPECT_FALSE(watch.has_seen(other)) << other;
}

TEST(JsonTest, IntegersOfMoreThan64BitsAreWrittenAsIntegers) {
  EXPECT_EQ(
      Json::parse("[1000000000000000019884624838656, 1e30, -18446744073709551616]", "").dump(),
      "[1000000000000000019884624838656, 1e+30, -18446744073709551616]");
}

}  // namespace
}  // namespace automodel
