#include "tokenizers/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "support/temporary_directory.h"
#include "tokenizers/tokenizer.h"

namespace automodel::tokenizers {
namespace {

/// The quickstart's tokenizer with another pre-tokenizer.
Tokenizer with_pre_tokenizer(const std::string& pre_tokenizer) {
  Json document =
      Json::parse_file(test::source_file("configs/quickstart_tokenizer/tokenizer.json"));
  document["pre_tokenizer"] = Json::parse(pre_tokenizer, "pre_tokenizer");
  return Tokenizer::from_json_text(document.dump(), "tokenizer.json");
}

TEST(PreTokenizerTest, ASplitBeforeBytesCutsAsASplitOfItsOwn) {
  const Json lines = Json::parse_file(test::source_file("tests/tokenizers/data/lines.json"));
  for (const char* behavior : {"Isolated", "Removed", "MergedWithNext"}) {
    for (const char* invert : {"false", "true"}) {
      for (const char* adds_space : {"false", "true"}) {
        const std::string split =
            cat(R"({"type": "Split", "pattern": {"Regex": " ?[a-z]+|\\d"},)", R"( "behavior": ")",
                behavior, R"(", "invert": )", invert, "}");
        const std::string bytes = cat(
            R"({"type": "ByteLevel", "use_regex": false, "add_prefix_space": )", adds_space, "}");
        const std::string begin = R"({"type": "Sequence", "pretokenizers": [)";
        const Tokenizer together = with_pre_tokenizer(cat(begin, split, ", ", bytes, "]}"));
        const Tokenizer apart = with_pre_tokenizer(cat(begin, begin, split, "]}, ", bytes, "]}"));
        for (const Json& line : lines.as_array()) {
          EXPECT_EQ(together.encode(line.as_string(), false), apart.encode(line.as_string(), false))
              << split << bytes << line.as_string();
        }
      }
    }
  }
}

}  // namespace
}  // namespace automodel::tokenizers
