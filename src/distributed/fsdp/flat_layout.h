#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace automodel::distributed {

/// A parameter to be placed in a unit's flat buffer.
struct LayoutItem {
  std::string parameter;  ///< fqn
  int64_t numel = 0;
};

/// Where a parameter's elements begin in the buffer.
struct LayoutEntry {
  std::string parameter;
  int64_t offset = 0;
  int64_t numel = 0;
};

/// The layout of a unit's flat buffer: its parameters in registration order, each beginning on a
/// border, padded so that every rank owns an equal range that begins on a border too. Borders are
/// multiples of 64 bytes, and of a number of elements where one is asked for.
struct FlatLayout {
  std::vector<LayoutEntry> entries;
  int64_t numel = 0;  ///< padding included

  /// Elements of each of `num_ranks` equal ranges.
  int64_t range_numel(int64_t num_ranks) const { return numel / num_ranks; }
};

/// Computes the layout of the items for `num_ranks` ranks and elements of `element_size` bytes.
FlatLayout lay_out(std::span<const LayoutItem> items, int64_t element_size, int64_t num_ranks,
                   int64_t border_numel = 1);

/// Half-open element ranges into which collectives over `numel` elements are cut: the first has at
/// most `first_bytes` bytes, the others at most `cap_bytes`.
struct Bucket {
  int64_t begin = 0;
  int64_t end = 0;
};
std::vector<Bucket> make_buckets(int64_t numel, int64_t element_size, int64_t first_bytes,
                                 int64_t cap_bytes);

}  // namespace automodel::distributed
