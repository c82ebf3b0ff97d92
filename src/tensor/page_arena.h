#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

namespace automodel::tensor {

/// Whole pages for large pieces of memory. Freed pages serve the next pieces, best fit first, and
/// neighbours grow together again; beyond the most that was ever in use at a time none are kept, so
/// the memory of a process that allocates here is what its fullest moment needs. Any thread may
/// call it.
class PageArena final {
 public:
  /// Bytes, whole pages.
  struct Counts {
    size_t in_use = 0;
    size_t peak_in_use = 0;
    size_t kept = 0;            ///< freed, not returned to the system
    uint64_t num_mapped = 0;    ///< pieces that freed pages could not serve
    uint64_t num_returned = 0;  ///< runs of pages returned to the system
  };

  PageArena() = default;
  ~PageArena();
  PageArena(const PageArena&) = delete;
  PageArena& operator=(const PageArena&) = delete;

  /// Memory with any contents, at the beginning of a page; null when the system has none.
  void* take(size_t bytes);
  /// Takes a piece back; false for memory that is not of this arena.
  bool give(void* piece);

  Counts counts() const;

 private:
  struct Run {
    size_t bytes = 0;
    uint64_t stamp = 0;  // of the moment it was freed
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

/// Has tensors on the CPU of 64 KiB and more live in an arena, from now on and until the process
/// ends. Called once, before such tensors are made.
void use_page_arena_for_tensors();

}  // namespace automodel::tensor
