#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/groups/collective.h"
#include "comm/shared_memory/shared_segment.h"

namespace automodel::comm {

/// What the writer of a slot is about: ranks that call the same operation write the same mark.
struct SlotMark {
  CollectiveKind kind = CollectiveKind::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  at::ScalarType dtype = at::kByte;
  int32_t root = 0;       ///< of a broadcast
  int64_t num_given = 0;  ///< elements that each rank gives

  bool operator==(const SlotMark&) const = default;
};

SlotMark mark_of(const Collective& collective);

/// "all_reduce (sum) of 8 Float elements", "barrier".
std::string describe(const SlotMark& mark);

/// The shared memory of a group. Every rank has a ring of slots that it fills and all others read,
/// counters for writing and reading, and a bell that rings when a counter that it waits for
/// changes.
class SlotRings final {
 public:
  static constexpr int64_t kSlotBytes = int64_t{256} << 10;
  static constexpr uint64_t kNumSlots = 8;

  static size_t num_bytes(int num_ranks);

  SlotRings(std::unique_ptr<SharedSegment> segment, int rank, int size);

  int rank() const { return rank_; }
  int size() const { return size_; }
  Bell& bell() { return counters(rank_).bell; }

  /// The next slot to fill; null until all ranks have read its previous contents.
  std::byte* free_slot();
  /// Marks that slot as filled, as part of what `mark` says.
  void publish(const SlotMark& mark);

  /// The next slot of another rank; null until it is filled.
  const std::byte* next_slot(int writer) const;
  /// What that slot is part of.
  const SlotMark& next_mark(int writer) const;
  /// Marks that slot as read.
  void release(int writer);

 private:
  /// Written by one rank only, except the bell.
  struct alignas(64) Counters {
    std::atomic<uint64_t> num_published;
    alignas(64) SlotMark marks[kNumSlots];
    alignas(64) Bell bell;
    /// Numbers of slots that this rank has read, by their writer.
    alignas(64) std::atomic<uint64_t> num_read[];
  };

  static size_t counters_bytes(int num_ranks);
  Counters& counters(int rank) const;
  std::byte* slot(int writer, uint64_t number) const;

  std::unique_ptr<SharedSegment> segment_;
  int rank_, size_;
  uint64_t num_published_ = 0;
  std::vector<uint64_t> num_read_;  ///< by this rank
};

}  // namespace automodel::comm
