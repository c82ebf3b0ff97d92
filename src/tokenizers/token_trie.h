#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "tokenizers/document.h"

namespace automodel::tokenizers {

/// Finds the tokens that a text begins with, byte by byte. The children of a node lie side by side,
/// so that their bytes are searched at once.
class TokenTrie final {
 public:
  /// Builds the trie of `tokens`, of which the last of equal ones counts and empty ones are never
  /// found.
  explicit TokenTrie(const StringList& tokens);

  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNone = ~uint32_t{0};

  /// The node behind one more byte; kNone when no token goes on so.
  uint32_t next(uint32_t node, char byte) const {
    const uint32_t first = first_child_[node];
    const uint32_t count = first_child_[node + 1] - first;
    if (count == 0) return kNone;
    const char* const children = bytes_.data() + first;
    const void* const child = std::memchr(children, static_cast<unsigned char>(byte), count);
    if (child == nullptr) return kNone;
    return first + static_cast<uint32_t>(static_cast<const char*>(child) - children);
  }
  /// The token's place in the list that ends at the node; kNone when none does.
  uint32_t token(uint32_t node) const { return token_[node]; }

 private:
  // By node; level by level, so that first_child_ ascends.
  std::vector<char> bytes_;
  std::vector<uint32_t> first_child_;  // with one more entry: the number of nodes
  std::vector<uint32_t> token_;
};

}  // namespace automodel::tokenizers
