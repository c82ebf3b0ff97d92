#include "datasets/samples/text_encoder.h"

namespace automodel::datasets {

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
