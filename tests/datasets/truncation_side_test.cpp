// Texts that lose their beginning, where a tokenizer or a recipe says truncation_side: left. The
// numbers are those of transformers 5.18 with the same tokenizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/file.h"
#include "core/json.h"
#include "datasets/conversations/chat_format.h"
#include "datasets/samples/format.h"
#include "datasets/samples/tokenizer_encoder.h"
#include "support/program.h"
#include "support/temporary_directory.h"

namespace automodel::datasets {
namespace {

using automodel::test::source_file;
using automodel::test::TemporaryDirectory;
using testing::ElementsAre;

constexpr EncoderOptions kLeft = {.truncates_left = true};

std::string quickstart() {
  return source_file("configs/quickstart_tokenizer");
}

/// "Hello there my old" + " friend of mine": 43 501 82 499 354 680 + 1139 285 942.
Sample sample_of(const TextEncoder& encoder, int64_t seq_length) {
  return format_prompt_completion(
      encoder, "Hello there my old", " friend of mine",
      {.seq_length = seq_length, .truncation = Truncation::kToLength, .is_unshifted = true});
}

TEST(TruncationSideTest, PromptsLoseTheirBeginning) {
  const auto encoder = load_text_encoder(quickstart(), kLeft);
  const Sample four = sample_of(*encoder, 4);
  EXPECT_THAT(four.input_ids, ElementsAre(680, 1139, 285, 942));
  EXPECT_THAT(four.labels, ElementsAre(kIgnoreIndex, 1139, 285, 942));
  EXPECT_EQ(four.num_cut, 5);
  // No token of the prompt is left.
  const Sample two = sample_of(*encoder, 2);
  EXPECT_THAT(two.input_ids, ElementsAre(285, 942));
  EXPECT_THAT(two.labels, ElementsAre(285, 942));
  const Sample right = sample_of(*load_text_encoder(quickstart()), 7);
  EXPECT_THAT(right.input_ids, ElementsAre(43, 501, 82, 499, 354, 680, 1139));
  EXPECT_EQ(right.labels.back(), 1139);
}

/// A copy of the quickstart's tokenizer.
std::string tokenizer_in(const TemporaryDirectory& directory) {
  const std::string folder = directory.file("tokenizer");
  std::filesystem::copy(quickstart(), folder);
  return folder;
}

TEST(TruncationSideTest, SpecialTokensStayWhereTheyAre) {
  const TemporaryDirectory directory;
  const std::string folder = tokenizer_in(directory);
  const std::string path = folder + "/tokenizer.json";
  Json tokenizer = Json::parse_file(path);
  tokenizer["post_processor"] = Json::parse(R"({
    "type": "TemplateProcessing", "pair": [],
    "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
               {"Sequence": {"id": "A", "type_id": 0}},
               {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}],
    "special_tokens": {
      "<|im_start|>": {"id": "<|im_start|>", "ids": [2], "tokens": ["<|im_start|>"]},
      "<|im_end|>": {"id": "<|im_end|>", "ids": [3], "tokens": ["<|im_end|>"]}}})",
                                            "post_processor");
  write_file_atomic(path, tokenizer.dump());
  EXPECT_THAT(sample_of(*load_text_encoder(folder, kLeft), 6).input_ids,
              ElementsAre(2, 680, 1139, 285, 942, 3));
}

TEST(TruncationSideTest, ATokenizersConfigurationMaySayItAndARecipeSaysMore) {
  const TemporaryDirectory directory;
  const std::string folder = tokenizer_in(directory);
  const std::string path = folder + "/tokenizer_config.json";
  Json config = Json::parse_file(path);
  config["truncation_side"] = "left";
  write_file_atomic(path, config.dump());
  EXPECT_TRUE(load_text_encoder(folder)->truncates_left());
  EXPECT_EQ(sample_of(*load_text_encoder(folder), 4).input_ids.front(), 680);
  EXPECT_FALSE(load_text_encoder(folder, {.truncates_left = false})->truncates_left());
  EXPECT_FALSE(load_text_encoder(quickstart())->truncates_left());
}

TEST(TruncationSideTest, ConversationsLoseTheirBeginning) {
  const auto encoder = load_text_encoder(quickstart(), kLeft);
  ChatFormatOptions options;
  options.format = {.seq_length = 6, .truncation = Truncation::kToLength, .is_unshifted = true};
  const std::string source =
      "{% for m in messages %}<{{m.role}}>{% if m.role == 'assistant' %}{% generation %}"
      "{{m.content}}{% endgeneration %}{% else %}{{m.content}}{% endif %}{% endfor %}";
  const Json messages = Json::parse(
      R"([{"role": "user", "content": "Hello there my old friend"},
          {"role": "assistant", "content": "of mine"}])",
      "messages");
  const ChatFormatter formatter(*encoder, source, options);
  const Sample sample = formatter.format(messages, Json(), "row 1");
  EXPECT_THAT(sample.input_ids, ElementsAre(824, 540, 33, 82, 73, 942));
  EXPECT_THAT(sample.labels, ElementsAre(kIgnoreIndex, kIgnoreIndex, kIgnoreIndex, 82, 73, 942));
  EXPECT_EQ(sample.num_cut, 13);
}

}  // namespace
}  // namespace automodel::datasets
