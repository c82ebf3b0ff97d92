#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/reporter.h"
#include "datasets/samples/dataset.h"

namespace automodel::datasets {

/// Which samples share a pack.
enum class PackingStrategy {
  kThd,   ///< in order; a sample that no longer fits closes the pack (next fit)
  kNeat,  ///< longest first, each into the emptiest pack that it fits: even fill
};

/// How samples are packed; the keys of `packed_sequence`.
struct PackingConfig {
  int64_t pack_size = 0;  ///< tokens of a pack
  PackingStrategy strategy = PackingStrategy::kThd;
  std::optional<int64_t> max_packs = std::nullopt;
  int64_t num_threads = 0;         ///< that tokenize; 0: as many as this process computes with
  bool drops_long_samples = true;  ///< else a sample longer than a pack is an error
  int64_t pad_to_multiple_of = 1;  ///< of every sample's length
};

/// The samples of each pack, as indices into `lengths`, in their order in the pack. Every length is
/// at most `pack_size`. Packs beyond `max_packs` are left out.
std::vector<std::vector<int64_t>> pack_lengths(std::span<const int64_t> lengths,
                                               const PackingConfig& config);

/// Counts of a dataset's samples by what happened to them.
struct PackingCounts {
  int64_t num_samples = 0;  ///< of the dataset
  int64_t num_packed = 0;   ///< that are in packs
  int64_t num_packs = 0;
  int64_t num_tokens = 0;      ///< in packs, without padding
  int64_t num_too_long = 0;    ///< longer than a pack
  int64_t num_unlabelled = 0;  ///< without a token that counts in the loss
  int64_t num_left_over = 0;   ///< in packs beyond max_packs
  int64_t num_cut = 0;         ///< in packs, without tokens that truncation left out
};

/// Packs of another dataset's samples: each pack has several samples in one sequence of `pack_size`
/// tokens, as separate documents (Sample::document_lengths), and padding after them. A sample's own
/// padding is removed. Samples are tokenized once for their lengths and again when their pack is
/// requested: only lengths are kept.
class PackedDataset final : public Dataset {
 public:
  /// Reports to `reporter` (may be null) how full the packs are and what was left out. Throws
  /// InputError when there is no pack, and for a sample that is longer than a pack and may not be
  /// dropped.
  PackedDataset(std::unique_ptr<const Dataset> samples, const PackingConfig& config,
                Reporter* reporter);

  int64_t size() const override { return static_cast<int64_t>(packs_.size()); }
  Sample at(int64_t index) const override;
  /// The rows of a pack's first and last sample.
  std::string origin(int64_t row) const override;
  std::vector<DataFingerprint> files() const override { return samples_->files(); }
  uint64_t order_checksum() const override { return order_checksum_; }
  bool depends_on_lengths() const override { return true; }
  /// The counts, and as "fill" the share of the packs' places that have a token.
  Json facts() const override;

  const PackingCounts& counts() const { return counts_; }

 private:
  /// The lengths and indices of samples that can be packed.
  struct Measured {
    std::vector<int64_t> samples;
    std::vector<int64_t> lengths;
    std::vector<char> are_cut;  ///< whether truncation left out tokens
  };
  Measured measure(Reporter* reporter);
  void describe(Reporter& reporter) const;
  int64_t padded(int64_t length) const;
  double fill() const;

  std::unique_ptr<const Dataset> samples_;
  PackingConfig config_;
  std::vector<std::vector<int64_t>> packs_;  ///< indices of samples_
  uint64_t order_checksum_ = 0;              ///< of the packs
  PackingCounts counts_;
};

}  // namespace automodel::datasets
