#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/store.h"

namespace automodel::comm {

/// Wakes sleepers of other processes; lives in shared memory, zero at first.
class Bell final {
 public:
  void ring();
  uint32_t num_rings() const { return num_rings_.load(std::memory_order_seq_cst); }
  /// Returns once it has rung since num_rings() was `seen`, or after the seconds, or before.
  void sleep(uint32_t seen, double seconds);

 private:
  std::atomic<uint32_t> num_rings_;
  std::atomic<uint32_t> num_sleepers_;
};

/// Memory that the ranks of a group share: without a name, so that it goes with its last process.
class SharedSegment final {
 public:
  /// Owns mapped memory from now on.
  SharedSegment(std::byte* data, size_t size) : data_(data), size_(size) {}
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  /// On a page's border; zero at first.
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
  size_t size_;
};

/// Where a group's ranks, all processes of one host, meet to share memory.
struct SegmentPlace {
  std::string key;  ///< of the group, below which they write
  int rank = 0;     ///< in the group
  int size = 1;
  double timeout_seconds = 60;
  int64_t maker_pid = 0;  ///< of the process that is rank 0, whose memory alone is taken
};

struct SegmentOutcome {
  std::unique_ptr<SharedSegment> segment;
  std::string why_not;  ///< the system's text, where there is none
};

/// Memory mapped by all ranks, or by none. What the store says of it is a claim: only memory of
/// rank 0's process that has no name, has this size and is sealed against changing it is mapped.
/// Throws std::runtime_error when a rank does not come in time.
SegmentOutcome share_segment(Store& store, const SegmentPlace& place, size_t num_bytes);

}  // namespace automodel::comm
