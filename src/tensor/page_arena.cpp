#include "tensor/page_arena.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>

#include "core/divide.h"
#include "core/error.h"

namespace automodel::tensor {

namespace {

size_t whole_pages(size_t bytes) {
  static const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return std::max(page, round_up(bytes, page));
}

}  // namespace

PageArena::~PageArena() {
  for (const auto& [begin, run] : kept_) ::munmap(begin, run.bytes);
  for (const auto& [begin, bytes] : in_use_) ::munmap(begin, bytes);
}

void* PageArena::take(size_t bytes) {
  bytes = whole_pages(bytes);
  const std::lock_guard lock(mutex_);
  std::byte* piece = take_kept(bytes);
  if (piece == nullptr) {
    void* mapped =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    piece = static_cast<std::byte*>(mapped);
    counts_.num_mapped += 1;
  }
  in_use_.emplace(piece, bytes);
  counts_.num_taken += 1;
  counts_.in_use += bytes;
  counts_.peak_in_use = std::max(counts_.peak_in_use, counts_.in_use);
  return_excess();
  return piece;
}

/// The beginning of the smallest run that is large enough; null when there is none.
std::byte* PageArena::take_kept(size_t bytes) {
  const auto fit = kept_by_size_.lower_bound({bytes, nullptr});
  if (fit == kept_by_size_.end()) return nullptr;
  std::byte* const begin = fit->second;
  const auto run = kept_.find(begin);
  const size_t rest = run->second.bytes - bytes;
  const uint64_t stamp = run->second.stamp;
  forget(run);
  if (rest > 0) {
    kept_.emplace(begin + bytes, Run{rest, stamp});
    kept_by_size_.emplace(rest, begin + bytes);
    kept_by_age_.emplace(stamp, begin + bytes);
    counts_.kept += rest;
  }
  return begin;
}

bool PageArena::give(void* piece) {
  const std::lock_guard lock(mutex_);
  const auto found = in_use_.find(piece);
  if (found == in_use_.end()) return false;
  const size_t bytes = found->second;
  in_use_.erase(found);
  counts_.in_use -= bytes;
  keep(static_cast<std::byte*>(piece), bytes);
  return true;
}

/// Joined with the neighbours that are kept.
void PageArena::keep(std::byte* begin, size_t bytes) {
  auto next = kept_.lower_bound(begin);
  if (next != kept_.end() && next->first == begin + bytes) {
    bytes += next->second.bytes;
    const auto joined = next++;
    forget(joined);
  }
  if (next != kept_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.bytes == begin) {
      begin = before->first;
      bytes += before->second.bytes;
      forget(before);
    }
  }
  const uint64_t stamp = next_stamp_++;
  kept_.emplace(begin, Run{bytes, stamp});
  kept_by_size_.emplace(bytes, begin);
  kept_by_age_.emplace(stamp, begin);
  counts_.kept += bytes;
}

void PageArena::forget(Runs::iterator run) {
  counts_.kept -= run->second.bytes;
  kept_by_size_.erase({run->second.bytes, run->first});
  kept_by_age_.erase(run->second.stamp);
  kept_.erase(run);
}

/// Returns the ends of the runs that were freed longest ago.
void PageArena::return_excess() {
  while (counts_.in_use + counts_.kept > counts_.peak_in_use) {
    const size_t excess = counts_.in_use + counts_.kept - counts_.peak_in_use;
    const auto oldest = kept_.find(kept_by_age_.begin()->second);
    std::byte* const begin = oldest->first;
    const Run run = oldest->second;
    const size_t returned = std::min(excess, run.bytes);
    forget(oldest);
    ::munmap(begin + (run.bytes - returned), returned);
    counts_.num_returned += 1;
    if (returned == run.bytes) continue;
    kept_.emplace(begin, Run{run.bytes - returned, run.stamp});
    kept_by_size_.emplace(run.bytes - returned, begin);
    kept_by_age_.emplace(run.stamp, begin);
    counts_.kept += run.bytes - returned;
  }
}

PageArena::Counts PageArena::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

namespace {

constexpr size_t kLargeBytes = size_t{64} << 10;

/// The process's arena. PyTorch frees memory by a plain function of its address, which has to find
/// the arena; it is never destroyed, for tensors may outlive everything that could own it.
PageArena& tensor_arena() {
  static auto* const arena = new PageArena;
  return *arena;
}

std::atomic<uint64_t>& num_small_pieces() {
  static std::atomic<uint64_t> count = 0;
  return count;
}

/// Large pieces from the arena, others from the allocator before it.
class ArenaAllocator final : public c10::Allocator {
 public:
  explicit ArenaAllocator(c10::Allocator* small) : small_(small) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes < kLargeBytes) {
      num_small_pieces().fetch_add(1, std::memory_order_relaxed);
      return small_->allocate(bytes);
    }
    void* const data = tensor_arena().take(bytes);
    if (data == nullptr)
      throw InputError(cat("cannot allocate ", format_bytes(bytes),
                           ": the machine has no memory left; fewer or shorter sequences a batch, "
                           "more ranks or activation checkpointing take less"));
    return {data, data, &give, c10::Device(c10::kCPU)};
  }

  /// For raw_allocate, whose pieces may be of either kind.
  c10::DeleterFnPtr raw_deleter() const override { return &give; }

  void copy_data(void* to, const void* from, std::size_t count) const override {
    default_copy_data(to, from, count);
  }

 private:
  static void give(void* piece) {
    if (!tensor_arena().give(piece)) c10::free_cpu(piece);
  }

  c10::Allocator* small_;
};

}  // namespace

void use_page_arena_for_tensors() {
  c10::SetCPUAllocator(new ArenaAllocator(c10::GetCPUAllocator()));
}

TensorMemoryCounts tensor_memory_counts() {
  const PageArena::Counts large = tensor_arena().counts();
  return {.num_small = num_small_pieces(),
          .num_large = large.num_taken,
          .num_mapped = large.num_mapped};
}

}  // namespace automodel::tensor
