// Every key of every family's config.json with values that are none: what is said of them is a
// finding, or the model is built; nothing crashes, loops or is a bug of this program.
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/file.h"
#include "models/catalog.h"
#include "models/causal_lm.h"
#include "models/golden_families.h"
#include "support/temporary_directory.h"

namespace automodel::models {
namespace {

/// Values that no key wants, and those that some keys do.
std::vector<Json> hostile_values() {
  const std::vector<std::string> texts = {"null",
                                          "true",
                                          "-1",
                                          "0",
                                          "1",
                                          "3",
                                          "7.5",
                                          "-0.0",
                                          "1e308",
                                          "\"\"",
                                          "[]",
                                          "[0]",
                                          "{}",
                                          "\"silu\"",
                                          "\"\\u0000\"",
                                          "9223372036854775807",
                                          "-9223372036854775808",
                                          "2147483648",
                                          "[[1, 2], [3]]",
                                          "[9223372036854775807]",
                                          "{\"rope_type\": \"yarn\", \"factor\": -1}"};
  std::vector<Json> values;
  for (const std::string& text : texts) values.push_back(Json::parse(text, "value"));
  return values;
}

/// The keys of a configuration, those of sections in it as "section/key".
std::vector<std::string> keys_of(const Json& config) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : config.as_object()) {
    keys.push_back(key);
    if (!value.is_object()) continue;
    for (const auto& [inner, unused] : value.as_object()) keys.push_back(cat(key, "/", inner));
  }
  return keys;
}

Json with_value(Json config, const std::string& key, const Json& value) {
  const size_t slash = key.find('/');
  if (slash == std::string::npos) {
    config[key] = value;
  } else {
    config[key.substr(0, slash)][key.substr(slash + 1)] = value;
  }
  return config;
}

/// What goes wrong with a configuration, "" where it is refused or built.
std::string fault_of(const Json& config) {
  try {
    if (!find_family(config).is_known) return "";
    if (!check_config(config).empty()) return "";
    build_causal_lm(config, at::kFloat);
    num_routed_experts(config);
    num_next_tokens(config);
  } catch (const UserError&) {
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

class HostileConfigTest : public testing::TestWithParam<std::string> {};

TEST_P(HostileConfigTest, IsRefusedOrBuilt) {
  const std::string path = test::source_file(cat("tests/golden/", GetParam(), "/config.json"));
  const Json config = Json::parse(read_file(path), path);
  ASSERT_EQ(fault_of(config), "");
  for (const std::string& key : keys_of(config)) {
    for (const Json& value : hostile_values()) {
      EXPECT_EQ(fault_of(with_value(config, key, value)), "") << key << ": " << value.dump();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, HostileConfigTest, testing::ValuesIn(test::golden_families()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace automodel::models
