#pragma once

#include <cstdint>
#include <vector>

namespace automodel::datasets {

/// torch.randperm(n, generator=torch.Generator().manual_seed(seed)).
std::vector<int64_t> random_permutation(int64_t n, int64_t seed);

/// Deals the rows of an epoch to data-parallel ranks as torch's DistributedSampler with drop_last:
/// the rows in order, or permuted with seed + epoch; the tail that does not fill all ranks is left
/// out; rank r takes positions r, r + num_replicas, ... What has been consumed is counted over all
/// ranks, so a position means the same on any number of them.
class DistributedSampler final {
 public:
  struct Options {
    int64_t num_rows = 0;
    int num_replicas = 1;
    int rank = 0;
    bool shuffle = true;
    int64_t seed = 42;
  };

  /// Throws InputError when there are fewer rows than ranks.
  explicit DistributedSampler(const Options& options);

  /// Rows that each rank gets in an epoch.
  int64_t size() const { return options_.num_rows / options_.num_replicas; }

  /// This rank's rows of an epoch, in order, after the first num_skipped of them.
  std::vector<int64_t> rows(int64_t epoch, int64_t num_skipped = 0) const;

 private:
  Options options_;
};

}  // namespace automodel::datasets
