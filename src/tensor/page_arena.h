#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

namespace automodel::tensor {

/// Allocates large pieces of memory in whole pages. Freed pages are reused, best fit first, and
/// neighbouring ones are merged; it keeps no more pages than were ever in use at once, so a process
/// needs only the memory of its fullest moment. Any thread may call it.
class PageArena final {
 public:
  /// In bytes of whole pages.
  struct Counts {
    size_t in_use = 0;
    size_t peak_in_use = 0;
    size_t kept = 0;            ///< freed, not returned to the system
    uint64_t num_taken = 0;     ///< pieces
    uint64_t num_mapped = 0;    ///< pieces that freed pages could not serve
    uint64_t num_returned = 0;  ///< runs of pages returned to the system
  };

  PageArena() = default;
  ~PageArena();
  PageArena(const PageArena&) = delete;
  PageArena& operator=(const PageArena&) = delete;

  /// Returns memory with undefined contents that begins at a page; null when the system has none.
  void* take(size_t bytes);
  /// Frees a piece; returns false for memory that is not of this arena.
  bool give(void* piece);

  Counts counts() const;

 private:
  struct Run {
    size_t bytes = 0;
    uint64_t stamp = 0;  // order in which it was freed
  };
  using Runs = std::map<std::byte*, Run>;

  std::byte* take_kept(size_t bytes);
  void keep(std::byte* begin, size_t bytes);
  void forget(Runs::iterator run);
  void return_excess();

  mutable std::mutex mutex_;
  Runs kept_;
  std::set<std::pair<size_t, std::byte*>> kept_by_size_;
  std::map<uint64_t, std::byte*> kept_by_age_;
  std::unordered_map<void*, size_t> in_use_;
  Counts counts_;
  uint64_t next_stamp_ = 0;
};

/// Makes CPU tensors of 64 KiB and more use an arena from now on until the process ends. Call it
/// once, before such tensors are made.
void use_page_arena_for_tensors();

/// Pieces of memory that CPU tensors have taken since they use the arena.
struct TensorMemoryCounts {
  uint64_t num_small = 0;   ///< of less than 64 KiB, from the heap
  uint64_t num_large = 0;   ///< the others
  uint64_t num_mapped = 0;  ///< of these, pieces that the system gave: pages at hand did not do
};

/// Zeros where tensors do not use the arena. Any thread may call it.
TensorMemoryCounts tensor_memory_counts();

}  // namespace automodel::tensor
