// Rotary frequencies against transformers' ROPE_INIT_FUNCTIONS (tests/golden/SOURCE.md).

#include "nn/rope_frequencies.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/json.h"
#include "support/temporary_directory.h"

namespace automodel {
namespace {

nn::RopeOptions options_of(const Json& test_case) {
  const Json& json = test_case.at("rope_parameters");
  nn::RopeOptions options;
  options.type = *nn::parse_rope_type(json.at("rope_type").as_string());
  options.theta = json.at("rope_theta").as_double();
  const double partial = json.get("partial_rotary_factor", 1.0);
  options.rotary_dim = static_cast<int64_t>(test_case.at("head_dim").as_double() * partial);
  if (options.type == nn::RopeType::kProportional) {
    options.num_turning_pairs = options.rotary_dim / 2;
    options.rotary_dim = test_case.at("head_dim").as_int();
  }
  options.max_positions = test_case.at("max_position_embeddings").as_int();
  options.original_max_positions =
      json.get("original_max_position_embeddings", options.max_positions);
  if (json.contains("factor")) options.factor = json.at("factor").as_double();
  options.low_freq_factor = json.get("low_freq_factor", 1.0);
  options.high_freq_factor = json.get("high_freq_factor", 4.0);
  options.beta_fast = json.get("beta_fast", 32.0);
  options.beta_slow = json.get("beta_slow", 1.0);
  options.mscale = json.get("mscale", 0.0);
  options.mscale_all_dim = json.get("mscale_all_dim", 0.0);
  options.is_truncated = json.get("truncate", true);
  if (json.contains("attention_factor")) {
    options.attention_factor = json.at("attention_factor").as_double();
  }
  for (const char* key : {"short_factor", "long_factor"}) {
    if (!json.contains(key)) continue;
    std::vector<double>& list =
        key == std::string("short_factor") ? options.short_factor : options.long_factor;
    for (const Json& value : json.at(key).as_array()) list.push_back(value.as_double());
  }
  return options;
}

TEST(RopeFrequencies, EveryTypeMatchesTransformers) {
  const Json cases = Json::parse_file(test::source_file("tests/golden/rope_frequencies.json"));
  ASSERT_GE(cases.size(), 10u);
  for (const Json& test_case : cases.as_array()) {
    SCOPED_TRACE(test_case.at("rope_parameters").dump());
    const nn::RopeFrequencies found =
        nn::rope_frequencies(options_of(test_case), test_case.at("length").as_int());
    const Json::Array& expected = test_case.at("inv_freq").as_array();
    ASSERT_EQ(found.values.size(), expected.size());
    const bool has_own_theta =
        test_case.at("rope_parameters").at("rope_type").as_string() == "dynamic";
    for (size_t i = 0; i < expected.size(); ++i) {
      // To the bit, as a unit in the last place is 1e-2 of an angle at position 131072; where theta
      // is no float32, PyTorch's power of it may be a unit away.
      const double value = expected[i].as_double();
      EXPECT_NEAR(found.values[i], value, has_own_theta ? 1.2e-7 * value : 0) << i;
    }
    EXPECT_NEAR(found.attention_factor, test_case.at("attention_factor").as_double(), 1e-12);
  }
}

TEST(RopeFrequencies, PlainFrequenciesArePowersOfTheta) {
  nn::RopeOptions options;
  options.rotary_dim = 4;
  const nn::RopeFrequencies found = nn::rope_frequencies(options, 16);
  ASSERT_EQ(found.values.size(), 2u);
  EXPECT_FLOAT_EQ(found.values[0], 1.0f);
  EXPECT_FLOAT_EQ(found.values[1], 0.01f);
}

TEST(RopeFrequencies, LongropeChangesItsClassBeyondTheOriginalLength) {
  nn::RopeOptions options;
  options.type = nn::RopeType::kLongrope;
  options.original_max_positions = 16;
  EXPECT_EQ(nn::rope_length_class(options, 16), nn::rope_length_class(options, 3));
  EXPECT_NE(nn::rope_length_class(options, 16), nn::rope_length_class(options, 17));
}

TEST(RopeFrequencies, UnknownTypesAreNotParsed) {
  EXPECT_EQ(nn::parse_rope_type("su"), std::nullopt);
  EXPECT_EQ(nn::parse_rope_type("yarn"), nn::RopeType::kYarn);
}

}  // namespace
}  // namespace automodel
