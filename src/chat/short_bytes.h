#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace automodel::chat {

namespace detail {
template <typename Word>
Word word_from(const char* bytes) {
  Word word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

template <typename Word>
void copy_ends(char* to, const char* from, size_t size) {
  const Word first = word_from<Word>(from);
  const Word last = word_from<Word>(from + size - sizeof(Word));
  std::memcpy(to, &first, sizeof(Word));
  std::memcpy(to + size - sizeof(Word), &last, sizeof(Word));
}

template <typename Word>
bool equal_ends(const char* left, const char* right, size_t size) {
  const size_t last = size - sizeof(Word);
  return ((word_from<Word>(left) ^ word_from<Word>(right)) |
          (word_from<Word>(left + last) ^ word_from<Word>(right + last))) == 0;
}
}  // namespace detail

/// left == right. Names, roles and keys are compared without a call: two words that overlap.
inline bool is_same(std::string_view left, std::string_view right) {
  const size_t size = left.size();
  if (size != right.size()) return false;
  if (size > 16) return std::memcmp(left.data(), right.data(), size) == 0;
  if (size >= 8) return detail::equal_ends<uint64_t>(left.data(), right.data(), size);
  if (size >= 4) return detail::equal_ends<uint32_t>(left.data(), right.data(), size);
  if (size >= 2) return detail::equal_ends<uint16_t>(left.data(), right.data(), size);
  return size == 0 || left.front() == right.front();
}

/// Copies bytes to memory of its own; short ones without a call.
inline void copy_bytes(char* to, std::string_view bytes) {
  const size_t size = bytes.size();
  if (size > 16) {
    std::memcpy(to, bytes.data(), size);
  } else if (size >= 8) {
    detail::copy_ends<uint64_t>(to, bytes.data(), size);
  } else if (size >= 4) {
    detail::copy_ends<uint32_t>(to, bytes.data(), size);
  } else if (size >= 2) {
    detail::copy_ends<uint16_t>(to, bytes.data(), size);
  } else if (size == 1) {
    *to = bytes.front();
  }
}

}  // namespace automodel::chat
