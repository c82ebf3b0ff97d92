#include <gtest/gtest.h>

#include <map>

#include "datasets/conversations/agent_chat.h"
#include "datasets/conversations/chat_dataset.h"
#include "datasets/conversations/xlam.h"
#include "datasets/encoders.h"
#include "datasets/samples/tokenizer_encoder.h"
#include "support/temporary_directory.h"

namespace automodel::datasets {
namespace {

using automodel::test::source_file;
using automodel::test::TemporaryDirectory;

/// The tokenizer of the goldens with another chat template.
class TemplatedEncoder final : public TextEncoder {
 public:
  TemplatedEncoder(const TextEncoder& encoder, std::string source)
      : encoder_(encoder), source_(std::move(source)) {}

  std::vector<int64_t> encode(std::string_view text, bool add_special_tokens) const override {
    return encoder_.encode(text, add_special_tokens);
  }
  tokenizers::TypedIds encode_texts(const tokenizers::TextAndPair& texts,
                                    std::optional<int64_t> most_tokens) const override {
    return encoder_.encode_texts(texts, most_tokens);
  }
  std::optional<int64_t> bos_token_id() const override { return encoder_.bos_token_id(); }
  std::optional<int64_t> eos_token_id() const override { return encoder_.eos_token_id(); }
  std::optional<int64_t> pad_token_id() const override { return encoder_.pad_token_id(); }
  bool add_bos_token() const override { return encoder_.add_bos_token(); }
  bool has_chat_template() const override { return true; }
  bool is_special(int64_t id) const override { return encoder_.is_special(id); }
  std::string token_text(int64_t id) const override { return encoder_.token_text(id); }
  std::string name() const override { return encoder_.name(); }
  std::optional<tokenizers::TemplateText> chat_template() const override {
    return tokenizers::TemplateText{source_, "template"};
  }
  std::string normalized(std::string_view text) const override { return encoder_.normalized(text); }
  Json template_variables() const override { return encoder_.template_variables(); }
  std::optional<std::vector<size_t>> token_ends(std::string_view text,
                                                const std::vector<int64_t>& ids) const override {
    return encoder_.token_ends(text, ids);
  }

 private:
  const TextEncoder& encoder_;
  std::string source_;
};

/// The options that several datasets have.
template <typename Config>
void set_length(const Json& options, Config& config) {
  if (const Json* length = options.find("seq_length")) {
    config.seq_length = length->as_int();
    const bool cuts = options.get("truncation", true);
    config.truncation = cuts ? Truncation::kToLength : Truncation::kNone;
  }
}

template <typename Config>
void set_masks(const Json& options, Config& config) {
  config.mask_generation_prompt = options.get("mask_generation_prompt", false);
  config.mask_reasoning_content = options.get("mask_reasoning_content", false);
}

Sample chat_sample(const Json& options, const std::string& file, const TextEncoder& encoder) {
  ChatDatasetConfig config{.path_or_dataset_id = {file}};
  set_length(options, config);
  set_masks(options, config);
  config.mask_history = options.get("mask_history", false);
  config.unshifted = options.get("unshifted", false);
  return ChatDataset(config, encoder).at(0);
}

Sample xlam_sample(const Json& options, const std::string& file, const TextEncoder& encoder) {
  XlamConfig config{.dataset_name = file};
  set_length(options, config);
  return XlamDataset(config, encoder).at(0);
}

Sample agent_sample(const Json& options, const std::string& file, const TextEncoder& encoder) {
  AgentChatConfig config{.path = {file}};
  set_length(options, config);
  set_masks(options, config);
  config.train_on_last_turn_only = options.get("train_on_last_turn_only", false);
  config.trim_incomplete_last_turn = options.get("trim_incomplete_last_turn", false);
  config.drop_history_reasoning_content = options.get("drop_history_reasoning_content", false);
  config.truncate_history = options.get("truncate_history", false);
  return AgentChatDataset(config, encoder).at(0);
}

/// Labels of a sample that is not shifted, as upstream's mask.
std::vector<int64_t> loss_mask(const Sample& sample) {
  std::vector<int64_t> mask;
  for (const int64_t label : sample.labels) mask.push_back(label == kIgnoreIndex ? 0 : 1);
  return mask;
}

void check_goldens(const std::string& dataset,
                   Sample (*make)(const Json&, const std::string&, const TextEncoder&)) {
  const TemporaryDirectory directory;
  const TokenizerEncoder encoder(
      tokenizers::Tokenizer::load(source_file("tests/datasets/data/tokenizer")));
  const Json goldens = Json::parse_file(source_file("tests/datasets/data/conversations.json"));
  int64_t num_compared = 0;
  for (const Json& golden : goldens.as_array()) {
    if (golden.at("dataset").as_string() != dataset) continue;
    SCOPED_TRACE(golden.dump());
    const std::string file = directory.write("x.jsonl", golden.at("row").dump() + "\n");
    const TemplatedEncoder with_template(encoder, golden.at("template").as_string());
    const Sample sample = make(golden.at("options"), file, with_template);
    EXPECT_EQ(sample.input_ids, test::integers(golden.at("input_ids")));
    if (const Json* mask = golden.find("loss_mask")) {
      EXPECT_EQ(loss_mask(sample), test::integers(*mask));
    } else {
      EXPECT_EQ(sample.labels, test::integers(golden.at("labels")));
    }
    ++num_compared;
  }
  EXPECT_GE(num_compared, 10);
}

TEST(ConversationGoldensTest, ChatDatasetLeavesOutWhatAutoModelLeavesOut) {
  check_goldens("chat", chat_sample);
}

TEST(ConversationGoldensTest, XlamRowsAreTheSamplesOfAutoModel) {
  check_goldens("xlam", xlam_sample);
}

TEST(ConversationGoldensTest, TracesOfAgentsAreTheSamplesOfAutoModel) {
  check_goldens("agent", agent_sample);
}

}  // namespace
}  // namespace automodel::datasets
