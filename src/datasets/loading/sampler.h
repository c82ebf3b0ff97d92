#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/field.h"

namespace automodel::datasets {

/// torch.randperm(n, generator=torch.Generator().manual_seed(seed)).
std::vector<int64_t> random_permutation(int64_t n, int64_t seed);

/// Which rows a data-parallel rank trains on in an epoch, and in which order.
class RowSampler {
 public:
  virtual ~RowSampler() = default;

  /// Number of rows of each rank in an epoch.
  virtual int64_t size() const = 0;

  /// This rank's rows of an epoch, in order, after the first num_skipped of them.
  virtual std::vector<int64_t> rows(int64_t epoch, int64_t num_skipped) const = 0;

  /// Whether the rows used up to a position depend on the number of ranks and the batch size: then
  /// a run can continue only with the same ones.
  virtual bool depends_on_ranks() const { return false; }

  /// Whether the order depends on the rows' lengths.
  virtual bool depends_on_lengths() const { return false; }

  /// A checksum of what the order of an epoch follows, the same on all ranks.
  virtual uint64_t order_checksum() const = 0;
};

/// How rows are assigned to ranks.
struct SamplerOptions {
  int64_t num_rows = 0;
  int num_replicas = 1;
  int rank = 0;
  bool shuffle = true;
  int64_t seed = 42;
  std::string dataset = "the dataset";  ///< what texts call it
};

/// Assigns the rows of an epoch to data-parallel ranks like torch's DistributedSampler with
/// drop_last: rows in order, or permuted with seed + epoch; a tail that does not fill all ranks is
/// dropped; rank r takes positions r, r + num_replicas, ... Consumed samples are counted over all
/// ranks, so a position means the same on any number of them.
class DistributedSampler final : public RowSampler {
 public:
  using Options = SamplerOptions;

  /// Throws InputError when there are fewer rows than ranks.
  explicit DistributedSampler(const Options& options);

  int64_t size() const override { return options_.num_rows / options_.num_replicas; }
  std::vector<int64_t> rows(int64_t epoch, int64_t num_skipped = 0) const override;
  uint64_t order_checksum() const override;

 private:
  Options options_;
};

/// Upstream's LengthGroupedSampler: rows are sorted by length, longest first, assigned round-robin
/// and cut into batches; an epoch takes the batches in the order of torch.randperm of seed + epoch.
/// All ranks' batches hold rows of nearly the same length. `shuffle` has no effect.
class LengthGroupedSampler final : public RowSampler {
 public:
  /// `lengths` of all rows. Throws InputError when they do not fill one batch on every rank.
  LengthGroupedSampler(const std::vector<int64_t>& lengths, int64_t batch_size,
                       const SamplerOptions& options);

  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  std::vector<int64_t> rows(int64_t epoch, int64_t num_skipped = 0) const override;
  bool depends_on_ranks() const override { return true; }
  bool depends_on_lengths() const override { return true; }
  uint64_t order_checksum() const override { return order_checksum_; }

 private:
  int64_t batch_size_;
  int64_t seed_;
  uint64_t order_checksum_;
  std::vector<int64_t> rows_;  ///< this rank's, batch by batch
};

/// Megatron's samplers (`dataloader_type`). Single: batches in order; a rank takes its part of what
/// all ranks' micro-batches take together. Cyclic: every rank has its own part of the rows and
/// shuffles it by torch.randperm of the epoch. Rows that do not fill a micro-batch on every rank
/// are dropped.
enum class MegatronOrder { kSingle, kCyclic };

class MegatronSampler final : public RowSampler {
 public:
  /// Throws InputError when the rows do not fill one batch on every rank.
  MegatronSampler(MegatronOrder order, int64_t batch_size, const SamplerOptions& options);

  int64_t size() const override { return num_batches_ * batch_size_; }
  std::vector<int64_t> rows(int64_t epoch, int64_t num_skipped = 0) const override;
  bool depends_on_ranks() const override { return order_ == MegatronOrder::kCyclic; }
  uint64_t order_checksum() const override;

 private:
  MegatronOrder order_;
  int64_t batch_size_;
  SamplerOptions options_;
  int64_t num_batches_;  ///< of a rank
};

}  // namespace automodel::datasets

template <>
struct automodel::EnumNames<automodel::datasets::MegatronOrder> {
  using MegatronOrder = automodel::datasets::MegatronOrder;
  static constexpr std::array<std::pair<std::string_view, MegatronOrder>, 2> values = {
      {{"single", MegatronOrder::kSingle}, {"cyclic", MegatronOrder::kCyclic}}};
};
