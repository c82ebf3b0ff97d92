#include "core/utf8.h"

#include <cstring>

namespace automodel {

void append_utf8(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xC0 | (c >> 6)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | (c >> 12)));
    out.push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  } else {
    out.push_back(static_cast<char>(0xF0 | (c >> 18)));
    out.push_back(static_cast<char>(0x80 | ((c >> 12) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  }
}

size_t decode_utf8(std::string_view text, size_t at, uint32_t& code) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) {
    code = first;
    return 1;
  }
  const size_t length = first >= 0xF0 && first <= 0xF4   ? 4
                        : first >= 0xE0 && first <= 0xEF ? 3
                        : first >= 0xC2 && first <= 0xDF ? 2
                                                         : 0;
  if (length == 0 || at + length > text.size()) return 0;
  code = first & (0xFF >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = (code << 6) | (byte(i) & 0x3F);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code < kLeast[length] || code > 0x10FFFF || is_surrogate ? 0 : length;
}

bool is_utf8(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080U;
  uint32_t code = 0;
  for (size_t at = 0; at < text.size();) {
    uint64_t word = kHighBits;
    if (at + sizeof(word) <= text.size()) std::memcpy(&word, text.data() + at, sizeof(word));
    if ((word & kHighBits) == 0) {
      at += sizeof(word);
      continue;
    }
    const size_t length = decode_utf8(text, at, code);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

char32_t next_code_point(std::string_view text, size_t& position) {
  const auto byte = [&] { return static_cast<unsigned char>(text[position++]); };
  const unsigned char lead = byte();
  if (lead < 0x80) return lead;
  const int num_more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  char32_t code = lead & (0x3F >> num_more);
  for (int i = 0; i < num_more && position < text.size(); ++i) code = (code << 6) | (byte() & 0x3F);
  return code;
}

char32_t previous_code_point(std::string_view text, size_t& position) {
  do {
    --position;
  } while (position > 0 && (static_cast<unsigned char>(text[position]) & 0xC0) == 0x80);
  size_t behind = position;
  return next_code_point(text, behind);
}

size_t num_whole_bytes(std::string_view text, size_t most) {
  if (text.size() <= most) return text.size();
  size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return end;
}

std::string shortened(std::string_view text, size_t most) {
  const size_t end = num_whole_bytes(text, most);
  std::string out(text.substr(0, end));
  if (end < text.size()) out += "...";
  return out;
}

}  // namespace automodel
