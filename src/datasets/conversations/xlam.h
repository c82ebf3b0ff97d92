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

/// Options of make_xlam_dataset; names and defaults are upstream's, but for chat_template.
struct XlamConfig {
  std::string dataset_name = "Salesforce/xlam-function-calling-60k";
  std::string split = "train";
  std::optional<int64_t> seq_length = std::nullopt;
  std::optional<int64_t> limit_dataset_samples = std::nullopt;
  bool fp8 = false;
  Padding padding = Padding::kNone;
  Truncation truncation = Truncation::kNone;
  std::optional<std::string> chat_template = std::nullopt;

  static constexpr auto fields() {
    using Config = XlamConfig;
    return std::tuple{
        field("dataset_name", &Config::dataset_name,
              "file or folder of rows, or data set of the hub, with columns query, tools, answers"),
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
        field("chat_template", &Config::chat_template,
              "template, or a file with one, in place of the tokenizer's own")};
  }

  SourceOptions source() const;
  FormatOptions format() const { return {seq_length, padding, truncation, true}; }
  static std::vector<std::string> columns_read() { return {"query", "tools", "answers", "id"}; }
  TemplateUse template_use() const { return use_of_template(chat_template, true); }
};

/// Checks the options and the first row's columns; see check() of column-mapped data.
SourceDescription check(const XlamConfig& config);

/// A row in xLAM's form: the user's request (`query`), functions (`tools`) and the calls that
/// answer it (`answers`); the last two are lists, or lists as JSON text.
struct FunctionCalls {
  Json messages;  ///< the user's question, and the assistant's message with `tool_calls`
  Json tools;     ///< functions with JSON schemas, as OpenAI writes them
};

/// Converts a row to messages and tools as upstream does: a parameter's type becomes a JSON schema
/// type (unknown ones become string), and a parameter without a default is required. Arguments
/// given as JSON texts become objects. Throws InputError "ORIGIN: ...".
FunctionCalls read_function_calls(const Json& row, const std::string& origin);

/// Function calling in xLAM's form, written with the tokenizer's chat template; the loss counts the
/// calls only. A row cut so short that it has no label is kept.
class XlamDataset final : public Dataset {
 public:
  /// `encoder` must outlive the dataset. Throws UserError when its tokenizer has no chat template,
  /// InputError for a wrong first row.
  XlamDataset(const XlamConfig& config, const TextEncoder& encoder);

  int64_t size() const override { return source_.size(); }
  Sample at(int64_t index) const override;
  std::string origin(int64_t row) const override { return source_.origin(row); }
  std::vector<DataFingerprint> files() const override { return source_.files(); }
  uint64_t order_checksum() const override { return source_.order_checksum(); }

 private:
  RowSource source_;
  ChatFormatter formatter_;
};

}  // namespace automodel::datasets
