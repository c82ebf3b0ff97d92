#include "core/html_text.h"

#include <cstdint>

#include "core/utf8.h"

namespace automodel {

std::string html_text(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    uint32_t code = 0;
    const size_t size = decode_utf8(text, at, code);
    const bool is_control = code < 0x20 && code != '\n' && code != '\t';
    if (size == 0 || is_control || code == 0x7f) {
      out += "\xEF\xBF\xBD";
    } else if (code == '&') {
      out += "&amp;";
    } else if (code == '<') {
      out += "&lt;";
    } else if (code == '>') {
      out += "&gt;";
    } else if (code == '"') {
      out += "&quot;";
    } else if (code == '\'') {
      out += "&#39;";
    } else {
      out += text.substr(at, size);
    }
    at += size == 0 ? 1 : size;
  }
  return out;
}

}  // namespace automodel
