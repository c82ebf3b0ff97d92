#include "comm/watch/traffic.h"

#include <algorithm>

namespace automodel::comm {

namespace {

int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
}

}  // namespace

void TrafficMeter::add(const Collective& collective) {
  Counted& counted = counted_[static_cast<size_t>(collective.kind)];
  counted.num_operations += 1;
  // The whole is what is gathered and what is reduced; elsewhere both sides have the same size, but
  // for an exchange of rows, of which what is sent counts.
  const bool is_exchange = collective.kind == CollectiveKind::kAllToAll;
  counted.bytes += is_exchange ? bytes_of(collective.in)
                               : std::max(bytes_of(collective.in), bytes_of(collective.out));
}

Traffic TrafficMeter::total() const {
  Traffic total;
  for (size_t i = 0; i < counted_.size(); ++i) {
    if (counted_[i].num_operations == 0) continue;
    total[collective_name(static_cast<CollectiveKind>(i))] = {counted_[i].num_operations,
                                                              counted_[i].bytes};
  }
  return total;
}

}  // namespace automodel::comm
