#include "datasets/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randperm.h>

#include <numeric>

#include "core/error.h"

namespace automodel::datasets {

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
    throw InputError(cat("the dataset has ", options.num_rows, " samples, fewer than the ",
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

}  // namespace automodel::datasets
