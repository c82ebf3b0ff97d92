#include "core/json.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"

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

TEST(JsonTest, RefusesBottomlessNesting) {
  EXPECT_THROW(Json::parse(std::string(100000, '['), "t"), InputError);
}

TEST(JsonTest, WritesDoublesAsPythonDoes) {
  EXPECT_EQ(Json(1.0).dump(), "1.0");
  EXPECT_EQ(Json(1e-05).dump(), "1e-05");
  EXPECT_EQ(Json(0.1).dump(), "0.1");
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

}  // namespace
}  // namespace automodel
