#pragma once

#include <functional>
#include <memory>

#include "comm/groups/process_group.h"
#include "comm/shared_memory/shared_segment.h"

namespace automodel::comm {

/// More ranks than this do not share memory.
constexpr int kMaxSharingRanks = 64;

/// Number of bytes that a group of this many ranks shares.
size_t shared_memory_bytes(int num_ranks);

struct SharedMemoryPlace {
  int rank = 0;
  int size = 1;
  double timeout_seconds = 60;
  /// Called twice a second while an operation is waited for; returns whether a peer is known to
  /// have failed.
  std::function<bool()> has_lost_peer;
};

/// A group of processes with shared memory, initially zero. `other` runs what it cannot: messages,
/// exchanges and tensors on devices. Sums are computed in the order of the ranks, so they are equal
/// to the bit on all ranks and in every run. Starts a thread that continues started operations
/// while nobody waits for them. Operations throw std::runtime_error.
std::shared_ptr<GroupBackend> share_memory(std::unique_ptr<SharedSegment> segment,
                                           const SharedMemoryPlace& place,
                                           std::shared_ptr<GroupBackend> other);

}  // namespace automodel::comm
