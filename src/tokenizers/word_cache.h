#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

namespace automodel::tokenizers {

/// The ids of words seen lately. Bounded: every word has one place, and a newer word takes it over.
/// Words that are long or have many tokens are not kept. Safe to use from several threads: while
/// one is at a part of the words, others find none of that part.
class WordCache final {
 public:
  WordCache();

  /// Appends the word's ids; false when the word is not here.
  bool find(std::string_view word, uint64_t hash, std::vector<int64_t>& ids) const;
  void insert(std::string_view word, uint64_t hash, std::span<const int64_t> ids);

 private:
  static constexpr size_t kMaxBytes = 23;
  static constexpr size_t kMaxIds = 9;
  static constexpr size_t kNumShards = 64;
  static constexpr size_t kSlotsPerShard = 512;

  struct Slot {
    std::array<char, kMaxBytes> word;
    uint8_t num_bytes = 0;  // 0 is free
    std::array<uint32_t, kMaxIds> ids;
    uint32_t num_ids = 0;
  };
  /// A mutex that nobody waits for, which costs less.
  class TryMutex final {
   public:
    bool try_lock() { return !flag_.test_and_set(std::memory_order_acquire); }
    void unlock() { flag_.clear(std::memory_order_release); }

   private:
    std::atomic_flag flag_;
  };
  struct Shard {
    mutable TryMutex mutex;
    std::vector<Slot> slots{kSlotsPerShard};
  };

  std::vector<Shard> shards_;
};

}  // namespace automodel::tokenizers
