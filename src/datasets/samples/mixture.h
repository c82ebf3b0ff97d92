#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/field.h"
#include "datasets/samples/dataset.h"

namespace automodel::datasets {

/// When an interleaved mixture ends; names are those of the datasets package.
enum class StoppingStrategy {
  kFirstExhausted,                  ///< with the first dataset that has given all of its samples
  kAllExhausted,                    ///< when every dataset has; those that end earlier begin anew
  kAllExhaustedWithoutReplacement,  ///< likewise, but those that end earlier give no more
};

/// How datasets take turns.
struct Interleaving {
  /// Chances of the datasets, with the sum 1; empty: each in turn. One of 0 leaves a dataset out,
  /// and needs kFirstExhausted.
  std::vector<double> probabilities;
  uint64_t seed = 0;  ///< of the draws
  StoppingStrategy stopping = StoppingStrategy::kFirstExhausted;
};

/// Which samples an interleaved mixture of datasets of these sizes (above 0) has, in order: places
/// in the datasets put one after another. The order is that of datasets.interleave_datasets for
/// the same arguments. Throws InputError when the order would be too long to keep.
std::vector<int64_t> interleaved_order(const std::vector<int64_t>& sizes,
                                       const Interleaving& interleaving);

/// The samples of several datasets, one dataset after another or interleaved.
class MixedDataset final : public Dataset {
 public:
  struct Part {
    std::string name;  ///< for messages and facts
    std::unique_ptr<const Dataset> dataset;
  };

  /// There is at least one part, and none is empty.
  explicit MixedDataset(std::vector<Part> parts,
                        const std::optional<Interleaving>& interleaving = std::nullopt);

  int64_t size() const override;
  Sample at(int64_t index) const override;
  int64_t row_end() const override { return size() + row_begins_.back(); }
  std::string origin(int64_t row) const override;
  std::vector<DataFingerprint> files() const override;
  uint64_t order_checksum() const override;
  bool depends_on_lengths() const override;
  /// {"num_samples", "datasets": [{"name", "num_samples", "num_rows"}]}: samples of an epoch.
  Json facts() const override;
  /// One of each part in turn.
  int64_t index_to_show(int64_t number) const override;

 private:
  /// Samples of a part that an epoch has.
  int64_t num_samples_of(size_t part) const;
  int64_t place_of(int64_t index) const;

  std::vector<Part> parts_;
  std::vector<int64_t> begins_;      ///< of the parts, one after another, and the end of the last
  std::vector<int64_t> row_begins_;  ///< likewise of the rows that their samples name
  std::vector<int64_t> order_;       ///< places; empty: all, as they are
};

}  // namespace automodel::datasets

template <>
struct automodel::EnumNames<automodel::datasets::StoppingStrategy> {
  using Strategy = automodel::datasets::StoppingStrategy;
  static constexpr std::array<std::pair<std::string_view, Strategy>, 3> values = {
      {{"first_exhausted", Strategy::kFirstExhausted},
       {"all_exhausted", Strategy::kAllExhausted},
       {"all_exhausted_without_replacement", Strategy::kAllExhaustedWithoutReplacement}}};
};
