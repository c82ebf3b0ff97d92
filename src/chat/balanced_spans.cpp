#include "chat/balanced_spans.h"

#include <cstdint>
#include <map>
#include <utility>

namespace automodel::chat {

namespace {

/// Readers that are in the same state: outside strings, inside one, or behind a backslash in one.
/// They stay together from there on, and differ in how deep they began.
struct Readers {
  int64_t depth = 0;
  std::multimap<int64_t, size_t> waiting;  ///< the depth that ends a reader, and its number

  /// Takes in others, the fewer moving to the more.
  void take(Readers& others) {
    if (others.waiting.size() > waiting.size()) std::swap(*this, others);
    for (const auto& [level, reader] : others.waiting) {
      waiting.emplace(level - others.depth + depth, reader);
    }
    others.waiting.clear();
  }
};

}  // namespace

std::vector<size_t> balanced_ends(std::string_view text, const std::vector<size_t>& begins,
                                  char opener, char closer) {
  std::vector<size_t> ends(begins.size(), std::string_view::npos);
  Readers outside, inside, escaped;
  size_t num_begun = 0;
  size_t num_waiting = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (num_waiting == 0) {
      if (num_begun == begins.size()) break;
      at = begins[num_begun];
    }
    if (num_begun < begins.size() && begins[num_begun] == at) {
      outside.waiting.emplace(outside.depth, num_begun++);
      ++num_waiting;
    }
    const char c = text[at];
    if (c == '"') {
      std::swap(outside, inside);
      inside.take(escaped);
    } else if (c == '\\') {
      std::swap(inside, escaped);
    } else {
      if (!escaped.waiting.empty()) inside.take(escaped);
      if (c == opener) ++outside.depth;
      if (c == closer) {
        --outside.depth;
        const auto [first, last] = outside.waiting.equal_range(outside.depth);
        for (auto ended = first; ended != last; ++ended, --num_waiting) {
          ends[ended->second] = at + 1;
        }
        outside.waiting.erase(first, last);
      }
    }
  }
  return ends;
}

}  // namespace automodel::chat
