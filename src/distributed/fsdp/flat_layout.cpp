#include "distributed/fsdp/flat_layout.h"

#include <algorithm>
#include <numeric>

#include "core/divide.h"
#include "core/error.h"

namespace automodel::distributed {

namespace {
constexpr int64_t kAlignment = 64;  // bytes: a cache line and the widest vector register
}  // namespace

FlatLayout lay_out(std::span<const LayoutItem> items, int64_t element_size, int64_t num_ranks,
                   int64_t border_numel) {
  AM_CHECK(element_size > 0 && kAlignment % element_size == 0 && num_ranks > 0);
  AM_CHECK(border_numel > 0);
  const int64_t border = std::lcm(kAlignment / element_size, border_numel);
  FlatLayout layout;
  for (const LayoutItem& item : items) {
    layout.numel = round_up(layout.numel, border);
    layout.entries.push_back({item.parameter, layout.numel, item.numel});
    layout.numel += item.numel;
  }
  layout.numel = round_up(layout.numel, border * num_ranks);
  return layout;
}

std::vector<Bucket> make_buckets(int64_t numel, int64_t element_size, int64_t first_bytes,
                                 int64_t cap_bytes) {
  std::vector<Bucket> buckets;
  int64_t limit = std::max<int64_t>(first_bytes / element_size, 1);
  for (int64_t begin = 0; begin < numel;) {
    const int64_t end = std::min(numel, begin + limit);
    buckets.push_back({begin, end});
    begin = end;
    limit = std::max<int64_t>(cap_bytes / element_size, 1);
  }
  return buckets;
}

}  // namespace automodel::distributed
