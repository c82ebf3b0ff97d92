#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

#include "tensor/shard_runs.h"

namespace automodel::checkpoint {

/// Elements of a tensor that are converted or copied at a time. On a CPU below ATen's grain size,
/// so that a conversion stays on the reading thread, and few enough for the cache.
inline int64_t piece_for(const at::Tensor& tensor) {
  return tensor.is_cpu() ? 32768 : int64_t{4} << 20;
}

/// Fills `out` with the elements of a shard, in pieces that go through `staging`: many short runs
/// then need few conversions or copies. `read(first, count, place)` puts the elements from `first`
/// of the whole tensor to `place` and on in staging.
template <typename Read>
void read_by_staging(const tensor::ShardSpec& spec, const at::Tensor& staging,
                     const at::Tensor& out, const Read& read) {
  const int64_t piece = staging.numel();
  int64_t staged_from = 0;  // in out
  int64_t staged = 0;
  const auto flush = [&] {
    if (staged == 0) return;
    out.narrow(0, staged_from, staged).copy_(staging.narrow(0, 0, staged));
    staged_from += staged;
    staged = 0;
  };
  for (tensor::ShardRunCursor runs(spec); !runs.is_at_end(); runs.step()) {
    const tensor::ShardRun& run = runs.run();
    for (int64_t done = 0; done < run.numel;) {
      const int64_t count = std::min(run.numel - done, piece - staged);
      read(run.global + done, count, staged);
      staged += count;
      done += count;
      if (staged == piece) flush();
    }
  }
  flush();
}

}  // namespace automodel::checkpoint
