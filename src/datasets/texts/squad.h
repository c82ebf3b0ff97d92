#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "datasets/conversations/chat_format.h"
#include "datasets/rows/row_source.h"
#include "datasets/samples/format.h"
#include "datasets/samples/most_tokens.h"

namespace automodel::datasets {

/// Options of make_squad_dataset; names and defaults are upstream's.
struct SquadConfig {
  std::string dataset_name = "squad";
  std::string split = "train";
  std::optional<int64_t> seq_length = std::nullopt;
  std::optional<int64_t> limit_dataset_samples = std::nullopt;
  bool fp8 = false;
  Padding padding = Padding::kNone;
  Truncation truncation = Truncation::kNone;
  std::optional<std::string> chat_template = std::nullopt;

  static constexpr auto fields() {
    using Config = SquadConfig;
    return std::tuple{
        field("dataset_name", &Config::dataset_name,
              "file or folder of rows, or data set of the hub, with columns context, question, "
              "answers{text}"),
        field("split", &Config::split,
              "split, with an optional slice such as train[:90%]; a sum of them: train[:10%]+test"),
        field("seq_length", &Config::seq_length, "tokens to pad or cut samples to")
            .at_least(2)
            .at_most(kMostTokens),
        field("limit_dataset_samples", &Config::limit_dataset_samples,
              "use only the first rows, unless split has a slice")
            .at_least(1),
        field("fp8", &Config::fp8, "nothing").without_effect("upstream ignores it too"),
        field("padding", &Config::padding, "max_length pads every sample to seq_length"),
        field("truncation", &Config::truncation, "true cuts samples to seq_length"),
        field("chat_template", &Config::chat_template, "template in place of the tokenizer's own")};
  }

  SourceOptions source() const;
  FormatOptions format() const { return {seq_length, padding, truncation, true}; }
  static std::vector<std::string> columns_read() { return {"context", "question", "answers"}; }
  TemplateUse template_use() const { return use_of_template(chat_template, false); }
};

/// Checks the options and the first row's columns; see check() of column-mapped data.
SourceDescription check(const SquadConfig& config);

/// Reading comprehension in SQuAD's form: "Context: C Question: Q Answer: " and the first answer,
/// trimmed ("" when a row has none). The loss counts the answer only. A row cut so short that it
/// has no label is kept.
class SquadDataset final : public Dataset {
 public:
  /// `encoder` must outlive the dataset. With a chat template (of the options or the tokenizer) the
  /// prompt is the user's message and the answer the assistant's.
  SquadDataset(const SquadConfig& config, const TextEncoder& encoder);

  int64_t size() const override { return source_.size(); }
  Sample at(int64_t index) const override;
  std::string origin(int64_t row) const override { return source_.origin(row); }
  std::vector<DataFingerprint> files() const override { return source_.files(); }
  uint64_t order_checksum() const override { return source_.order_checksum(); }

 private:
  FormatOptions format_;
  const TextEncoder& encoder_;
  RowSource source_;
  std::optional<ChatFormatter> chat_;
};

}  // namespace automodel::datasets
