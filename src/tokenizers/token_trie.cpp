#include "tokenizers/token_trie.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <numeric>
#include <string_view>

#include "core/error.h"

namespace automodel::tokenizers {

namespace {

/// Tokens, by their places in the sorted list, that begin with the same bytes.
struct SamePrefix {
  size_t begin;
  size_t end;
  size_t num_bytes;
};

std::vector<uint32_t> sorted_places(const StringList& tokens) {
  std::vector<uint32_t> places(tokens.size());
  std::iota(places.begin(), places.end(), 0U);
  std::ranges::sort(places, [&](uint32_t a, uint32_t b) {
    const int order = tokens[a].compare(tokens[b]);
    return order != 0 ? order < 0 : a < b;
  });
  return places;
}

}  // namespace

TokenTrie::TokenTrie(const StringList& tokens) {
  const std::vector<uint32_t> places = sorted_places(tokens);
  std::deque<SamePrefix> open = {{0, places.size(), 0}};
  bytes_.push_back('\0');  // the root's, which nobody asks for
  while (!open.empty()) {
    auto [begin, end, num_bytes] = open.front();
    open.pop_front();
    first_child_.push_back(static_cast<uint32_t>(bytes_.size()));
    uint32_t last = kNone;
    for (; begin < end && tokens[places[begin]].size() == num_bytes; ++begin) last = places[begin];
    token_.push_back(last);
    while (begin < end) {
      const char byte = tokens[places[begin]][num_bytes];
      const size_t group = begin;
      while (begin < end && tokens[places[begin]][num_bytes] == byte) ++begin;
      bytes_.push_back(byte);
      open.push_back({group, begin, num_bytes + 1});
    }
    AM_CHECK(bytes_.size() < kNone);
  }
  first_child_.push_back(static_cast<uint32_t>(bytes_.size()));
}

}  // namespace automodel::tokenizers
