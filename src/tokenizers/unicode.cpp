#include "tokenizers/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <span>

#include "core/error.h"
#include "tokenizers/character_tables.h"

namespace automodel::tokenizers {

namespace {

/// How many bytes the valid beginning of a sequence takes, and whether it is whole.
struct Prefix {
  size_t size = 1;
  bool is_whole = false;
};

bool is_continuation(unsigned char byte) {
  return (byte & 0xC0) == 0x80;
}

Prefix utf8_prefix(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, true};
  size_t wanted = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    wanted = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    wanted = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    wanted = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {1, false};
  }
  if (text.size() < 2 || byte(1) < low || byte(1) > high) return {1, false};
  for (size_t i = 2; i < wanted; ++i) {
    if (i >= text.size() || !is_continuation(byte(i))) return {i, false};
  }
  return {wanted, true};
}

/// The entry of a table of ascending ranges that holds `c`; nullptr when none does.
template <typename Entry>
const Entry* entry_of(std::span<const Entry> table, char32_t c) {
  const auto next = std::ranges::upper_bound(table, c, {}, &Entry::first);
  if (next == table.begin()) return nullptr;
  const Entry& entry = *std::prev(next);
  return c <= entry.last ? &entry : nullptr;
}

bool is_in(std::span<const tables::CharacterRange> table, char32_t c) {
  return c >= table.front().first && entry_of(table, c) != nullptr;
}

constexpr bool is_printable_latin(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

/// The byte alphabet of GPT-2: printable Latin-1 stands for itself, the other bytes follow from
/// U+0100 on.
struct ByteAlphabet {
  std::array<std::array<char, 2>, 256> utf8{};
  std::array<uint8_t, 256> size{};
  std::array<int16_t, 324> byte{};

  constexpr ByteAlphabet() {
    for (int16_t& entry : byte) entry = -1;
    int next = 256;
    for (int b = 0; b < 256; ++b) {
      const int c = is_printable_latin(b) ? b : next++;
      byte[static_cast<size_t>(c)] = static_cast<int16_t>(b);
      const auto index = static_cast<size_t>(b);
      if (c < 0x80) {
        utf8[index] = {static_cast<char>(c), 0};
        size[index] = 1;
      } else {
        utf8[index] = {static_cast<char>(0xC0 | (c >> 6)), static_cast<char>(0x80 | (c & 0x3F))};
        size[index] = 2;
      }
    }
  }
};

constexpr ByteAlphabet kByteAlphabet;

}  // namespace

bool is_ascii(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if ((word & 0x8080808080808080ULL) != 0) return false;
  }
  for (; i < text.size(); ++i) {
    if (static_cast<unsigned char>(text[i]) >= 0x80) return false;
  }
  return true;
}

size_t find_invalid_utf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const Prefix prefix = utf8_prefix(text.substr(i));
    if (!prefix.is_whole) return i;
    i += prefix.size;
  }
  return std::string_view::npos;
}

std::string lossy_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  size_t i = 0;
  while (i < bytes.size()) {
    const Prefix prefix = utf8_prefix(bytes.substr(i));
    if (prefix.is_whole) {
      out.append(bytes.substr(i, prefix.size));
    } else {
      append_utf8(out, 0xFFFD);
    }
    i += prefix.size;
  }
  return out;
}

bool is_whitespace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return is_in(tables::kNumeric, c);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) {
    return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) ||
           (c >= 0x7B && c <= 0x7E);
  }
  return is_in(tables::kPunctuation, c);
}

bool is_word_character(char32_t c) {
  if (c < 0x80) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }
  return is_in(tables::kWord, c);
}

bool is_combining_mark(char32_t c) {
  return c >= 0x300 && is_in(tables::kCombiningMark, c);
}

bool is_nonspacing_mark(char32_t c) {
  return c >= 0x300 && is_in(tables::kNonspacingMark, c);
}

bool is_control_or_other(char32_t c) {
  return is_in(tables::kOther, c);
}

std::optional<char32_t> older_stand_in(char32_t c) {
  if (c < tables::kNewerCharacters.front().first) return std::nullopt;
  const tables::StandIn* entry = entry_of(tables::kNewerCharacters, c);
  return entry == nullptr ? std::nullopt : std::optional(entry->other);
}

namespace {

/// The normal form of a text whose characters utf8proc and the reference treat alike.
void append_normal_form(std::string& out, std::string_view text, utf8proc_option_t options) {
  if (text.empty()) return;
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &result, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  if (size < 0) {
    throw InputError(cat("cannot normalize a text of ", text.size(),
                         " bytes: ", static_cast<const char*>(utf8proc_errmsg(size))));
  }
  out.append(reinterpret_cast<const char*>(result), static_cast<size_t>(size));
}

}  // namespace

std::string normal_form(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  int options = UTF8PROC_STABLE;
  const bool composes = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  options |= composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  // The reference's tables are of an older Unicode: a character that they lack stays as it is and
  // parts the text, as any starter that composes with nothing.
  std::string out;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t at = i;
    if (!is_in(tables::kUnknownToNormalForms, next_code_point(text, i))) continue;
    append_normal_form(out, text.substr(begin, at - begin),
                       static_cast<utf8proc_option_t>(options));
    out.append(text, at, i - at);
    begin = i;
  }
  append_normal_form(out, text.substr(begin), static_cast<utf8proc_option_t>(options));
  return out;
}

std::string lower_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const char32_t c = next_code_point(text, i);
    if (c == 0x130) {  // the one character whose lower case is two
      append_utf8(out, 'i');
      append_utf8(out, 0x307);
    } else if (const tables::StandIn* newer = entry_of(tables::kNewerLowerCase, c)) {
      append_utf8(out, newer->other + (c - newer->first));
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  }
  return out;
}

char* write_byte_level(char* out, std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    std::memcpy(out, kByteAlphabet.utf8[byte].data(), 2);
    out += kByteAlphabet.size[byte];
  }
  return out;
}

int byte_of_character(char32_t c) {
  return c < kByteAlphabet.byte.size() ? kByteAlphabet.byte[c] : -1;
}

}  // namespace automodel::tokenizers
