#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace automodel::distributed {

/// A parameter to be laid into a unit's flat buffer.
struct LayoutItem {
  std::string parameter;  ///< fqn
  int64_t numel = 0;
};

/// Where a parameter's elements begin.
struct LayoutEntry {
  std::string parameter;
  int64_t offset = 0;
  int64_t numel = 0;
};

/// A unit's flat buffer: its parameters in registration order, each beginning on a 64-byte border,
/// the whole padded so that every rank owns an equal range that begins on such a border.
struct FlatLayout {
  std::vector<LayoutEntry> entries;
  int64_t numel = 0;  ///< padding included

  /// Elements of one of `num_ranks` equal ranges.
  int64_t range_numel(int64_t num_ranks) const { return numel / num_ranks; }
};

/// Lays the items out for `num_ranks` ranks and elements of `element_size` bytes.
FlatLayout lay_out(std::span<const LayoutItem> items, int64_t element_size, int64_t num_ranks);

/// Half-open element ranges of collectives over `numel` elements: the first of at most
/// `first_bytes`, the others of at most `cap_bytes`.
struct Bucket {
  int64_t begin = 0;
  int64_t end = 0;
};
std::vector<Bucket> make_buckets(int64_t numel, int64_t element_size, int64_t first_bytes,
                                 int64_t cap_bytes);

}  // namespace automodel::distributed
