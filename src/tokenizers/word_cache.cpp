#include "tokenizers/word_cache.h"

#include <bit>
#include <cstring>

namespace automodel::tokenizers {

namespace {

// Parts of a slot's state.
constexpr uint64_t kWriting = 1;
constexpr uint64_t kCountMask = 0xFFFFFFFF;

uint64_t state_of(uint64_t count, size_t num_bytes, size_t num_ids) {
  return (count & kCountMask) | (uint64_t{num_bytes} << 32) | (uint64_t{num_ids} << 40);
}
size_t num_bytes_of(uint64_t state) {
  return (state >> 32) & 0xFF;
}
size_t num_ids_of(uint64_t state) {
  return (state >> 40) & 0xFF;
}

template <typename T>
T load(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

/// One to seven bytes as a number, without going through memory byte by byte.
uint64_t load_few(const char* from, size_t size) {
  if (size >= 4) {
    const uint64_t last = load<uint32_t>(from + size - 4);
    return load<uint32_t>(from) | (last << (8 * (size - 4)));
  }
  const auto byte = [&](size_t i) { return uint64_t{static_cast<unsigned char>(from[i])}; };
  return byte(0) | (byte(size / 2) << (8 * (size / 2))) | (byte(size - 1) << (8 * (size - 1)));
}

}  // namespace

WordCache::WordCache() : slots_(kNumSlots) {}

WordCache::Bytes WordCache::bytes_of(std::string_view word) {
  Bytes bytes{};
  const size_t num_whole = word.size() / 8;
  for (size_t i = 0; i < num_whole; ++i) bytes[i] = load<uint64_t>(word.data() + 8 * i);
  const size_t num_rest = word.size() % 8;
  if (num_rest > 0) bytes[num_whole] = load_few(word.data() + 8 * num_whole, num_rest);
  return bytes;
}

size_t WordCache::slot_of(const Bytes& bytes) {
  constexpr std::array<uint64_t, kMaxBytes / 8> kFactors = {
      0x9E3779B97F4A7C15U, 0xC2B2AE3D27D4EB4FU, 0xD6E8FEB86659FD93U};
  uint64_t hash = 0;
  for (size_t i = 0; i < bytes.size(); ++i) hash += bytes[i] * kFactors[i];
  return hash >> (64 - std::countr_zero(kNumSlots));
}

WordCache::Place WordCache::place_of(std::string_view word) const {
  Place place;
  if (word.size() > kMaxBytes || word.empty()) return place;
  place.bytes = bytes_of(word);
  place.size = word.size();
  place.slot = slot_of(place.bytes);
  __builtin_prefetch(&slots_[place.slot]);
  return place;
}

bool WordCache::find(const Place& word, std::vector<int64_t>& ids) const {
  if (word.size == 0) return false;
  const Slot& slot = slots_[word.slot];
  const uint64_t state = slot.state.load(std::memory_order_acquire);
  if ((state & kWriting) != 0 || num_bytes_of(state) != word.size) return false;
  for (size_t i = 0; i < word.bytes.size(); ++i) {
    if (slot.bytes[i].load(std::memory_order_acquire) != word.bytes[i]) return false;
  }
  std::array<uint64_t, kMaxIds / 2> pairs;
  for (size_t i = 0; i < pairs.size(); ++i) {
    pairs[i] = slot.ids[i].load(std::memory_order_acquire);
  }
  if (slot.state.load(std::memory_order_relaxed) != state) return false;
  for (size_t i = 0; i < num_ids_of(state); ++i) {
    ids.push_back(static_cast<int64_t>((pairs[i / 2] >> (32 * (i % 2))) & 0xFFFFFFFF));
  }
  return true;
}

void WordCache::insert(const Place& word, std::span<const int64_t> ids) {
  if (word.size == 0 || ids.size() > kMaxIds) return;
  Slot& slot = slots_[word.slot];
  uint64_t state = slot.state.load(std::memory_order_relaxed);
  if ((state & kWriting) != 0) return;
  if (!slot.state.compare_exchange_strong(state, state | kWriting, std::memory_order_acquire)) {
    return;
  }
  std::array<uint64_t, kMaxIds / 2> pairs{};
  for (size_t i = 0; i < ids.size(); ++i) {
    pairs[i / 2] |= uint64_t{static_cast<uint32_t>(ids[i])} << (32 * (i % 2));
  }
  // Who sees one of these must find the state changed.
  for (size_t i = 0; i < word.bytes.size(); ++i) {
    slot.bytes[i].store(word.bytes[i], std::memory_order_release);
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    slot.ids[i].store(pairs[i], std::memory_order_release);
  }
  slot.state.store(state_of(state + 2, word.size, ids.size()), std::memory_order_release);
}

}  // namespace automodel::tokenizers
