#include "datasets/loading/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/error.h"
#include "datasets/rows/order_checksum.h"

namespace automodel::datasets {

namespace {

/// The ways to order rows, as checksums have them.
enum class OrderKind : int64_t { kDistributed, kByLength, kMegatronSingle, kMegatronCyclic };

}  // namespace

std::vector<int64_t> random_permutation(int64_t n, int64_t seed) {
  const at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
  const at::Tensor permutation = at::randperm(n, generator, at::TensorOptions().dtype(at::kLong));
  const int64_t* data = permutation.const_data_ptr<int64_t>();
  return {data, data + n};
}

DistributedSampler::DistributedSampler(const Options& options) : options_(options) {
  AM_CHECK(options.rank >= 0 && options.rank < options.num_replicas, "rank ", options.rank, " of ",
           options.num_replicas);
  if (options.num_rows < options.num_replicas) {
    throw InputError(cat(options.dataset, " has ", options.num_rows, " samples, fewer than the ",
                         options.num_replicas, " data-parallel ranks"));
  }
}

std::vector<int64_t> DistributedSampler::rows(int64_t epoch, int64_t num_skipped) const {
  std::vector<int64_t> order;
  if (options_.shuffle) order = random_permutation(options_.num_rows, options_.seed + epoch);
  std::vector<int64_t> rows;
  for (int64_t i = num_skipped; i < size(); ++i) {
    const int64_t position = i * options_.num_replicas + options_.rank;
    rows.push_back(options_.shuffle ? order[static_cast<size_t>(position)] : position);
  }
  return rows;
}

uint64_t DistributedSampler::order_checksum() const {
  OrderChecksum sum;
  sum.add(static_cast<int64_t>(OrderKind::kDistributed));
  if (options_.shuffle) sum.add(options_.seed);
  return sum.value();
}

namespace {

int64_t checked_batches(int64_t num_rows, int64_t batch_size, const SamplerOptions& options) {
  const int64_t num_batches = num_rows / (batch_size * options.num_replicas);
  if (num_batches > 0) return num_batches;
  throw InputError(cat(options.dataset, " has ", num_rows, " samples, fewer than a batch of ",
                       batch_size, " on each of ", options.num_replicas, " data-parallel ranks"));
}

}  // namespace

LengthGroupedSampler::LengthGroupedSampler(const std::vector<int64_t>& lengths, int64_t batch_size,
                                           const SamplerOptions& options)
    : batch_size_(batch_size), seed_(options.seed) {
  const int64_t num_batches = checked_batches(std::ssize(lengths), batch_size, options);
  std::vector<int64_t> sorted(lengths.size());
  std::iota(sorted.begin(), sorted.end(), int64_t{0});
  std::ranges::stable_sort(sorted, std::ranges::greater(),
                           [&](int64_t row) { return lengths[static_cast<size_t>(row)]; });
  order_checksum_ = OrderChecksum()
                        .add(static_cast<int64_t>(OrderKind::kByLength))
                        .add(seed_)
                        .add(sorted)
                        .value();
  for (int64_t i = 0; i < num_batches * batch_size; ++i) {
    rows_.push_back(sorted[static_cast<size_t>(i * options.num_replicas + options.rank)]);
  }
}

std::vector<int64_t> LengthGroupedSampler::rows(int64_t epoch, int64_t num_skipped) const {
  const std::vector<int64_t> batches = random_permutation(size() / batch_size_, seed_ + epoch);
  std::vector<int64_t> rows;
  rows.reserve(rows_.size());
  for (const int64_t batch : batches) {
    const auto begin = rows_.begin() + batch * batch_size_;
    rows.insert(rows.end(), begin, begin + batch_size_);
  }
  rows.erase(rows.begin(), rows.begin() + std::min(num_skipped, size()));
  return rows;
}

MegatronSampler::MegatronSampler(MegatronOrder order, int64_t batch_size,
                                 const SamplerOptions& options)
    : order_(order),
      batch_size_(batch_size),
      options_(options),
      num_batches_(checked_batches(options.num_rows, batch_size, options)) {}

uint64_t MegatronSampler::order_checksum() const {
  const bool is_cyclic = order_ == MegatronOrder::kCyclic;
  const OrderKind kind = is_cyclic ? OrderKind::kMegatronCyclic : OrderKind::kMegatronSingle;
  return OrderChecksum().add(static_cast<int64_t>(kind)).value();
}

std::vector<int64_t> MegatronSampler::rows(int64_t epoch, int64_t num_skipped) const {
  std::vector<int64_t> rows;
  if (order_ == MegatronOrder::kCyclic) {
    const std::vector<int64_t> order = random_permutation(size(), epoch);
    for (int64_t i = num_skipped; i < size(); ++i) {
      rows.push_back(options_.rank * size() + order[static_cast<size_t>(i)]);
    }
    return rows;
  }
  // From what all ranks have taken, which may have been others.
  const int64_t step = batch_size_ * options_.num_replicas;
  const int64_t begin = num_skipped * options_.num_replicas;
  for (int64_t batch = begin; batch + step <= options_.num_rows; batch += step) {
    for (int64_t i = 0; i < batch_size_; ++i) {
      rows.push_back(batch + options_.rank * batch_size_ + i);
    }
  }
  return rows;
}

}  // namespace automodel::datasets
