#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/field.h"
#include "datasets/rows/row_source.h"
#include "datasets/samples/dataset.h"
#include "datasets/samples/text_encoder.h"

namespace automodel::datasets {

/// Options of HellaSwag; names and defaults are upstream's.
struct HellaSwagConfig {
  std::string path_or_dataset;
  std::string split = "train";
  std::optional<int64_t> num_samples_limit = std::nullopt;
  bool pad_to_max_length = true;

  static constexpr auto fields() {
    using Config = HellaSwagConfig;
    return std::tuple{
        field("path_or_dataset", &Config::path_or_dataset,
              "file or folder of rows, or data set of the hub, with columns ctx, endings, label")
            .required(),
        field("split", &Config::split,
              "split, with an optional slice such as train[:90%]; a sum of them: train[:10%]+test"),
        field("num_samples_limit", &Config::num_samples_limit, "use only the first rows")
            .at_least(1),
        field("pad_to_max_length", &Config::pad_to_max_length,
              "pad every sample to the longest of all, rounded up to a multiple of 8")};
  }

  SourceOptions source() const {
    return {{path_or_dataset}, split, std::nullopt, num_samples_limit};
  }
};

/// Checks the options and the first row's columns; see check() of column-mapped data.
SourceDescription check(const HellaSwagConfig& config);

/// Contexts continued with their right ending. Both are tokenized by themselves; a special token at
/// the context's end and one at the ending's beginning are left out when the first row has them.
/// input_ids are all tokens; labels are the ending's tokens, shifted. With pad_to_max_length all
/// rows are tokenized once, in the constructor, and kept. Padding is the tokenizer's pad id or 0.
class HellaSwagDataset final : public Dataset {
 public:
  /// `encoder` must outlive the dataset.
  HellaSwagDataset(const HellaSwagConfig& config, const TextEncoder& encoder);

  int64_t size() const override { return source_.size(); }
  Sample at(int64_t index) const override;
  std::string origin(int64_t row) const override { return source_.origin(row); }
  std::vector<DataFingerprint> files() const override { return source_.files(); }
  uint64_t order_checksum() const override { return source_.order_checksum(); }

 private:
  struct Tokens {
    std::vector<int64_t> context;
    std::vector<int64_t> ending;
  };

  Tokens tokenize(int64_t index) const;
  Sample make_sample(int64_t index) const;

  const TextEncoder& encoder_;
  RowSource source_;
  bool drops_context_end_ = false;
  bool drops_ending_begin_ = false;
  int64_t pad_id_ = 0;
  int64_t padded_length_ = 0;    ///< 0: not padded
  std::vector<Sample> samples_;  ///< all of them when padded
};

}  // namespace automodel::datasets
