#pragma once

#include <functional>
#include <memory>

#include "comm/process_group.h"
#include "comm/shared_segment.h"

namespace automodel::comm {

/// More ranks than this do not share memory.
constexpr int kMaxSharingRanks = 64;

/// What a group of this many ranks shares.
size_t shared_memory_bytes(int num_ranks);

struct SharedMemoryPlace {
  int rank = 0;
  int size = 1;
  double timeout_seconds = 60;
  /// Asked twice a second while an operation is waited for: whether a peer is known to have failed.
  std::function<bool()> has_lost_peer;
};

/// A group of processes that share memory, zero at first. What it cannot do itself it leaves to
/// `other`: messages, exchanges and tensors of other devices. Sums are made in the order of the
/// ranks: equal to the bit on all ranks and in every run. Starts a thread that moves what has been
/// started while nobody waits. Its operations throw std::runtime_error.
std::shared_ptr<GroupBackend> share_memory(std::unique_ptr<SharedSegment> segment,
                                           const SharedMemoryPlace& place,
                                           std::shared_ptr<GroupBackend> other);

}  // namespace automodel::comm
