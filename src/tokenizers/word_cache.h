#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace automodel::tokenizers {

/// The ids of words seen lately. Bounded: every word has one place, and a newer word takes it over.
/// Words that are long or have many tokens are not kept. Safe to use from several threads, which do
/// not wait for each other: a place that is written meanwhile holds nothing for its readers.
class WordCache final {
 public:
 private:
  static constexpr size_t kMaxBytes = 24;
  static constexpr size_t kMaxIds = 8;
  static constexpr size_t kNumSlots = 32768;

  /// A word's bytes, eight in each; words of the same size have the same only when they are equal.
  using Bytes = std::array<uint64_t, kMaxBytes / 8>;

 public:
  /// A word, and where it lies when it is here.
  class Place {
    friend WordCache;
    Bytes bytes{};
    size_t size = 0;  // 0: of a word that is never kept
    size_t slot = 0;
  };

  WordCache();

  /// Begins to bring the place into the CPU's cache, for what follows soon.
  Place place_of(std::string_view word) const;
  /// Appends the word's ids; false when the word is not here.
  bool find(const Place& word, std::vector<int64_t>& ids) const;
  void insert(const Place& word, std::span<const int64_t> ids);

 private:
  /// One line of the cache. `state` holds the number of bytes, the number of ids and a count of
  /// what was written, which is odd while somebody writes. A reader whose state is the same before
  /// and after has read what belongs together.
  struct alignas(64) Slot {
    std::atomic<uint64_t> state{0};
    std::array<std::atomic<uint64_t>, kMaxBytes / 8> bytes{};
    std::array<std::atomic<uint64_t>, kMaxIds / 2> ids{};  // two in each
  };

  static Bytes bytes_of(std::string_view word);
  static size_t slot_of(const Bytes& bytes);

  std::vector<Slot> slots_;
};

}  // namespace automodel::tokenizers
