#include "comm/shared_memory/slot_rings.h"

#include <utility>

namespace automodel::comm {

namespace {

constexpr size_t kPage = 4096;

size_t rounded_up(size_t size, size_t alignment) {
  return (size + alignment - 1) / alignment * alignment;
}

}  // namespace

size_t SlotRings::counters_bytes(int num_ranks) {
  return rounded_up(
      sizeof(Counters) + static_cast<size_t>(num_ranks) * sizeof(std::atomic<uint64_t>),
      alignof(Counters));
}

size_t SlotRings::num_bytes(int num_ranks) {
  const auto n = static_cast<size_t>(num_ranks);
  return rounded_up(n * counters_bytes(num_ranks), kPage) +
         n * kNumSlots * static_cast<size_t>(kSlotBytes);
}

SlotRings::SlotRings(std::unique_ptr<SharedSegment> segment, int rank, int size)
    : segment_(std::move(segment)),
      rank_(rank),
      size_(size),
      num_read_(static_cast<size_t>(size), 0) {}

SlotRings::Counters& SlotRings::counters(int rank) const {
  return *reinterpret_cast<Counters*>(segment_->data() +
                                      static_cast<size_t>(rank) * counters_bytes(size_));
}

std::byte* SlotRings::slot(int writer, uint64_t number) const {
  const size_t index = static_cast<size_t>(writer) * kNumSlots + number % kNumSlots;
  return segment_->data() + rounded_up(static_cast<size_t>(size_) * counters_bytes(size_), kPage) +
         index * static_cast<size_t>(kSlotBytes);
}

std::byte* SlotRings::free_slot() {
  for (int reader = 0; reader < size_; ++reader) {
    if (reader == rank_) continue;
    const std::atomic<uint64_t>& num_read = counters(reader).num_read[rank_];
    if (num_published_ - num_read.load(std::memory_order_acquire) >= kNumSlots) return nullptr;
  }
  return slot(rank_, num_published_);
}

void SlotRings::publish() {
  counters(rank_).num_published.store(++num_published_, std::memory_order_release);
  for (int reader = 0; reader < size_; ++reader) {
    if (reader != rank_) counters(reader).bell.ring();
  }
}

const std::byte* SlotRings::next_slot(int writer) const {
  const uint64_t number = num_read_[static_cast<size_t>(writer)];
  const std::atomic<uint64_t>& num_published = counters(writer).num_published;
  if (num_published.load(std::memory_order_acquire) <= number) return nullptr;
  return slot(writer, number);
}

void SlotRings::release(int writer) {
  const uint64_t num_read = ++num_read_[static_cast<size_t>(writer)];
  counters(rank_).num_read[writer].store(num_read, std::memory_order_release);
  counters(writer).bell.ring();
}

}  // namespace automodel::comm
