#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizers/document.h"

namespace automodel::tokenizers {

/// The model's tokens: text to id and back.
class Vocabulary final {
 public:
  /// What becomes of tokens with the same text.
  enum class Twins { kRefused, kLastCounts };

  /// Throws InputError when an id is there twice, or a token unless `twins` allows it, or when an
  /// id is negative or so large that it cannot belong to a vocabulary of this size.
  Vocabulary(StringList tokens, std::vector<int64_t> ids, const std::string& file,
             Twins twins = Twins::kRefused);

  /// -1 when there is no such token.
  int64_t find(std::string_view token) const;
  std::optional<std::string_view> token(int64_t id) const;

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t id_bound() const { return static_cast<int64_t>(entry_of_id_.size()); }

 private:
  struct Slot {
    uint32_t hash = 0;
    uint32_t entry = 0;  // index into tokens_ plus one; 0 is free
  };

  StringList tokens_;
  std::vector<int64_t> ids_;
  std::vector<Slot> slots_;            // open addressing, a power of two of them
  std::vector<uint32_t> entry_of_id_;  // index into tokens_ plus one; 0 for a hole
};

/// Merges by their pair of ids.
class MergeTable final {
 public:
  struct Merge {
    uint32_t rank;
    uint32_t id;  ///< of the merged token
  };

  explicit MergeTable(size_t num_merges);
  /// A later merge of the same pair replaces the earlier.
  void insert(uint32_t left, uint32_t right, Merge merge);
  /// nullptr when the pair does not merge.
  const Merge* find(uint32_t left, uint32_t right) const;
  /// Whether a pair becomes the token.
  bool gives(int64_t id) const {
    return static_cast<size_t>(id) < is_given_.size() && is_given_[static_cast<size_t>(id)];
  }

 private:
  struct Slot {
    uint64_t pair = kFree;
    Merge merge{0, 0};
  };
  static constexpr uint64_t kFree = ~uint64_t{0};
  size_t slot_of(uint64_t pair) const;

  std::vector<Slot> slots_;
  std::vector<bool> is_given_;  // by id
};

}  // namespace automodel::tokenizers
