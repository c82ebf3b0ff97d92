#include "chat/characters.h"

#include <algorithm>
#include <cstring>

#include "chat/case_tables.h"

namespace automodel::chat {

namespace {

unsigned char byte_at(std::string_view text, size_t at) {
  return static_cast<unsigned char>(text[at]);
}

bool is_continuation(unsigned char byte) {
  return (byte & 0xC0) == 0x80;
}

/// Eight bytes at once.
uint64_t word_at(std::string_view text, size_t at) {
  uint64_t word = 0;
  std::memcpy(&word, text.data() + at, sizeof(word));
  return word;
}

bool is_in(std::span<const tables::CharacterRange> ranges, char32_t c) {
  const auto* found =
      std::partition_point(ranges.data(), ranges.data() + ranges.size(),
                           [&](const tables::CharacterRange& range) { return range.last < c; });
  return found != ranges.data() + ranges.size() && found->first <= c;
}

void append_mapped(std::string& out, std::span<const tables::CaseMapping> mappings, char32_t c) {
  const auto* found =
      std::partition_point(mappings.data(), mappings.data() + mappings.size(),
                           [&](const tables::CaseMapping& mapping) { return mapping.from < c; });
  if (found == mappings.data() + mappings.size() || found->from != c) {
    append_utf8(out, c);
    return;
  }
  for (const char32_t to : found->to) {
    if (to != 0) append_utf8(out, to);
  }
}

void append_upper(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c));
  } else {
    append_mapped(out, tables::kToUpper, c);
  }
}

void append_lower(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  } else {
    append_mapped(out, tables::kToLower, c);
  }
}

void append_title(std::string& out, char32_t c) {
  if (c < 0x80) {
    append_upper(out, c);
  } else {
    append_mapped(out, tables::kToTitle, c);
  }
}

bool is_cased(char32_t c) {
  return is_lower(c) || is_upper(c) || is_title(c);
}

bool is_case_ignorable(char32_t c) {
  if (c < 0x80) return c == '\'' || c == '.' || c == ':' || c == '^' || c == '`';
  return is_in(tables::kCaseIgnorable, c);
}

/// A sigma at the end of a word, which [begin, end) of the text is.
bool is_final_sigma(std::string_view text, size_t begin, size_t end) {
  bool follows_cased = false;
  for (size_t at = begin; at > 0;) {
    const char32_t c = previous_code_point(text, at);
    if (is_case_ignorable(c)) continue;
    follows_cased = is_cased(c);
    break;
  }
  if (!follows_cased) return false;
  for (size_t at = end; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (is_case_ignorable(c)) continue;
    return !is_cased(c);
  }
  return true;
}

void append_lower_at(std::string& out, std::string_view text, size_t begin, size_t end,
                     char32_t c) {
  if (c == 0x3A3) {
    append_utf8(out, is_final_sigma(text, begin, end) ? 0x3C2 : 0x3C3);
  } else {
    append_lower(out, c);
  }
}

constexpr uint64_t kOnes = 0x0101010101010101U;

/// A one in each byte of a word that continues a character.
uint64_t continuations_in(uint64_t word) {
  return (word >> 7) & ~(word >> 6) & kOnes;
}

}  // namespace

int64_t count_code_points(std::string_view text) {
  constexpr size_t kNumWords = 16;
  size_t at = 0;
  int64_t num_continuations = 0;
  while (at + 8 <= text.size()) {
    // A bit a byte, summed in the word's bytes; the product's last byte is their sum, below 256.
    const size_t count = std::min(kNumWords, (text.size() - at) / 8);
    uint64_t sums = 0;
    for (size_t i = 0; i < count; ++i, at += 8) {
      sums += continuations_in(word_at(text, at));
    }
    num_continuations += static_cast<int64_t>(sums * kOnes >> 56);
  }
  for (; at < text.size(); ++at) num_continuations += is_continuation(byte_at(text, at)) ? 1 : 0;
  return static_cast<int64_t>(text.size()) - num_continuations;
}

size_t byte_of_code_point(std::string_view text, int64_t number) {
  size_t at = 0;
  // Eight bytes at a time, as long as the code point cannot begin in them.
  for (; number >= 8 && at + 8 <= text.size(); at += 8) {
    number -= 8 - static_cast<int64_t>(continuations_in(word_at(text, at)) * kOnes >> 56);
  }
  for (; at < text.size(); ++at) {
    if (!is_continuation(byte_at(text, at)) && number-- == 0) return at;
  }
  return text.size();
}

bool is_alpha(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return is_in(tables::kAlpha, c);
}
bool is_decimal(char32_t c) {
  return c < 0x80 ? c >= '0' && c <= '9' : is_in(tables::kDecimal, c);
}
bool is_digit(char32_t c) {
  return c < 0x80 ? c >= '0' && c <= '9' : is_in(tables::kDigit, c);
}
bool is_numeric(char32_t c) {
  return c < 0x80 ? c >= '0' && c <= '9' : is_in(tables::kNumeric, c);
}
bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
  return is_in(tables::kSpace, c);
}
bool is_printable(char32_t c) {
  return c < 0x80 ? c >= ' ' && c < 0x7F : is_in(tables::kPrintable, c);
}
bool is_lower(char32_t c) {
  return c < 0x80 ? c >= 'a' && c <= 'z' : is_in(tables::kLower, c);
}
bool is_upper(char32_t c) {
  return c < 0x80 ? c >= 'A' && c <= 'Z' : is_in(tables::kUpper, c);
}
bool is_title(char32_t c) {
  return c >= 0x80 && is_in(tables::kTitle, c);
}

std::string to_upper_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) append_upper(out, next_code_point(text, at));
  return out;
}

std::string to_lower_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    append_lower_at(out, text, begin, at, c);
  }
  return out;
}

std::string to_title_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool follows_cased = false;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    if (follows_cased) {
      append_lower_at(out, text, begin, at, c);
    } else {
      append_title(out, c);
    }
    follows_cased = is_cased(c);
  }
  return out;
}

std::string capitalized(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    if (begin == 0) {
      append_title(out, c);
    } else {
      append_lower_at(out, text, begin, at, c);
    }
  }
  return out;
}

std::string with_swapped_case(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    if (is_upper(c)) {
      append_lower_at(out, text, begin, at, c);
    } else if (is_lower(c)) {
      append_upper(out, c);
    } else {
      append_utf8(out, c);
    }
  }
  return out;
}

std::string case_folded(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (c < 0x80) {
      append_lower(out, c);
    } else {
      append_mapped(out, tables::kFold, c);
    }
  }
  return out;
}

std::string_view stripped(std::string_view text, bool at_left, bool at_right) {
  size_t begin = 0;
  while (at_left && begin < text.size()) {
    size_t behind = begin;
    if (!is_space(next_code_point(text, behind))) break;
    begin = behind;
  }
  size_t end = text.size();
  while (at_right && end > begin) {
    size_t before = end;
    if (!is_space(previous_code_point(text, before))) break;
    end = before;
  }
  return text.substr(begin, end - begin);
}

size_t find_in(std::string_view text, std::string_view wanted, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (wanted.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t find_last_in(std::string_view text, std::string_view wanted) {
  const std::string backwards(text.rbegin(), text.rend());
  const size_t found = find_in(backwards, std::string(wanted.rbegin(), wanted.rend()));
  if (found == std::string_view::npos) return found;
  return text.size() - found - wanted.size();
}

}  // namespace automodel::chat
