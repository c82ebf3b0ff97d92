#include "comm/shared_memory/slot_rings.h"

#include <c10/core/ScalarType.h>

#include <string_view>
#include <utility>

#include "core/divide.h"
#include "core/error.h"
#include "core/text.h"

namespace automodel::comm {

namespace {

constexpr size_t kPage = 4096;

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAvg:
      return "average";
    case ReduceOp::kMax:
      return "maximum";
    case ReduceOp::kMin:
      return "minimum";
  }
  AM_CHECK(false);
}

bool is_reduction(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter;
}

}  // namespace

SlotMark mark_of(const Collective& it) {
  SlotMark mark;
  mark.kind = it.kind;
  if (is_reduction(it.kind)) mark.op = it.op;
  if (it.kind == CollectiveKind::kBroadcast) mark.root = it.peer;
  const at::Tensor& given = it.in.defined() ? it.in : it.out;
  if (given.defined()) {
    mark.dtype = given.scalar_type();
    mark.num_given = given.numel();
  }
  return mark;
}

std::string describe(const SlotMark& mark) {
  std::string text(collective_name(mark.kind));
  if (mark.kind == CollectiveKind::kBarrier) return text;
  if (mark.kind == CollectiveKind::kBroadcast) text += cat(" from rank ", mark.root);
  if (is_reduction(mark.kind)) text += cat(" (", name_of(mark.op), ")");
  return cat(text, " of ", mark.num_given, " ", c10::toString(mark.dtype), " elements");
}

size_t SlotRings::counters_bytes(int num_ranks) {
  return round_up(sizeof(Counters) + static_cast<size_t>(num_ranks) * sizeof(std::atomic<uint64_t>),
                  alignof(Counters));
}

size_t SlotRings::num_bytes(int num_ranks) {
  const auto n = static_cast<size_t>(num_ranks);
  return round_up(n * counters_bytes(num_ranks), kPage) +
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
  return segment_->data() + round_up(static_cast<size_t>(size_) * counters_bytes(size_), kPage) +
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

void SlotRings::publish(const SlotMark& mark) {
  counters(rank_).marks[num_published_ % kNumSlots] = mark;
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

const SlotMark& SlotRings::next_mark(int writer) const {
  return counters(writer).marks[num_read_[static_cast<size_t>(writer)] % kNumSlots];
}

void SlotRings::release(int writer) {
  const uint64_t num_read = ++num_read_[static_cast<size_t>(writer)];
  counters(rank_).num_read[writer].store(num_read, std::memory_order_release);
  counters(writer).bell.ring();
}

}  // namespace automodel::comm
