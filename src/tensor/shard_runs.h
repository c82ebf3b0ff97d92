#pragma once

#include <cstdint>

#include "tensor/shard_spec.h"

namespace automodel::tensor {

/// Iterates over the runs of a shard, in the order of the global tensor, with only one in memory.
/// The spec must outlive the cursor.
class ShardRunCursor final {
 public:
  explicit ShardRunCursor(const ShardSpec& spec);

  bool is_at_end() const { return run_.numel == 0; }
  const ShardRun& run() const { return run_; }
  void step();

 private:
  const ShardSpec& spec_;
  int64_t row_ = 1;    // elements that are contiguous in box and global tensor
  int64_t split_ = 0;  // from this dim on the box is whole
  int64_t next_local_ = 0;
  ShardRun run_;
};

}  // namespace automodel::tensor
