#include "datasets/samples/text_encoder.h"

namespace automodel::datasets {

std::optional<int64_t> TextEncoder::find_special(std::string_view text) const {
  for (const int64_t id : encode(text, /*add_special_tokens=*/false)) {
    if (is_special(id)) return id;
  }
  return std::nullopt;
}

std::optional<std::vector<size_t>> TextEncoder::token_ends(std::string_view text,
                                                           const std::vector<int64_t>& ids) const {
  std::vector<size_t> ends;
  size_t at = 0;
  for (const int64_t id : ids) {
    const std::string token = token_text(id);
    if (text.substr(at, token.size()) != token) return std::nullopt;
    at += token.size();
    ends.push_back(at);
  }
  if (at != text.size()) return std::nullopt;
  return ends;
}

}  // namespace automodel::datasets
