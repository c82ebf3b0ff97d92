#pragma once

#include <cstdint>

#include "tensor/shard_spec.h"

namespace automodel::tensor {

/// The runs of a shard, one after another, in the order of the global tensor. However many they
/// are, one is in memory. The spec must outlive the cursor.
class ShardRunCursor final {
 public:
  explicit ShardRunCursor(const ShardSpec& spec);

  bool is_at_end() const { return run_.numel == 0; }
  const ShardRun& run() const { return run_; }
  void step();

 private:
  const ShardSpec& spec_;
  int64_t row_ = 1;    // elements that are contiguous in box and global tensor
  int64_t split_ = 0;  // dims from here on are whole in the box
  int64_t next_local_ = 0;
  ShardRun run_;
};

}  // namespace automodel::tensor
