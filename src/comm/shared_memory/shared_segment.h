#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/store/store.h"

namespace automodel::comm {

/// Wakes waiting threads in other processes. Lives in shared memory, initially zero.
class Bell final {
 public:
  void ring();
  uint32_t num_rings() const { return num_rings_.load(std::memory_order_seq_cst); }
  /// Returns when the bell has rung since num_rings() was `seen`, after `seconds`, or spuriously.
  void sleep(uint32_t seen, double seconds);

 private:
  std::atomic<uint32_t> num_rings_;
  std::atomic<uint32_t> num_sleepers_;
};

/// Memory that the ranks of a group share. It has no name, so it disappears with its last process.
class SharedSegment final {
 public:
  /// Takes ownership of mapped memory.
  SharedSegment(std::byte* data, size_t size) : data_(data), size_(size) {}
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  /// Begins at a page; initially zero.
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
  size_t size_;
};

/// Where the ranks of a group, all processes of one host, meet to share memory.
struct SegmentPlace {
  std::string key;  ///< of the group; prefix of their keys
  int rank = 0;     ///< in the group
  int size = 1;
  double timeout_seconds = 60;
  int64_t maker_pid = 0;  ///< rank 0's process; only its memory is mapped
};

struct SegmentOutcome {
  std::unique_ptr<SharedSegment> segment;
  std::string why_not;  ///< the system's error, if there is no memory
};

/// Maps memory on all ranks, or on none. What the store says about it is not trusted: a rank maps
/// only memory of rank 0's process that has no name, has this size and is sealed against changes.
/// Throws std::runtime_error when a rank does not arrive in time.
SegmentOutcome share_segment(Store& store, const SegmentPlace& place, size_t num_bytes);

}  // namespace automodel::comm
