#include "config/diagnostic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "config/load.h"

namespace automodel::config {
namespace {

using testing::HasSubstr;
using testing::Not;

/// What is said of the key `a.b`, with the line that it is in.
std::string finding_in(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const auto loaded = load_text(text, "recipe.yaml", overrides,
                                [](const std::string&) { return std::optional<std::string>(); });
  Diagnostics diagnostics(loaded.sources);
  diagnostics.error_at_key(*loaded.root.find("a")->find("b"), "wrong");
  return diagnostics.render(diagnostics.findings().at(0));
}

TEST(DiagnosticTest, ALineShowsNoValueOfASecretKey) {
  EXPECT_EQ(finding_in("a: {api_key: abc, b: 1, c: 2}\n"),
            "recipe.yaml:1:19: error: wrong [a.b]\n  a: {api_key: ***, b: 1, c: 2}\n"
            "                    ^");
  EXPECT_THAT(finding_in("a: {'api_key': 'a, b', b: 1}\n"), HasSubstr("{'api_key': ******, b: 1}"));
  EXPECT_THAT(finding_in("a: {password: p\xC3\xA4ss, b: 1}\n"),
              HasSubstr("{password: ****, b: 1}"));
  EXPECT_THAT(finding_in("a: {b: 1, hf_token: abc}\n"), HasSubstr("{b: 1, hf_token: ***}"));
  EXPECT_THAT(finding_in("a: {x: 2}\n", {"--a.b={'token': 'abc'}"}), Not(HasSubstr("abc")));
  // What is no secret stays, and so does what is not in the file.
  EXPECT_THAT(finding_in("a: {b: 1, tokenizer: abc, eos_token: x}\n"),
              HasSubstr("{b: 1, tokenizer: abc, eos_token: x}"));
}

}  // namespace
}  // namespace automodel::config
