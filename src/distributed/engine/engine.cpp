#include "distributed/engine/engine.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <set>

#include "core/text.h"

namespace automodel::distributed {

namespace {

/// Whether all values are finite. Looks at pieces, since a device may have no room for more.
bool is_finite(const at::Tensor& values) {
  constexpr int64_t kPiece = 1 << 22;
  for (int64_t begin = 0; begin < values.numel(); begin += kPiece) {
    const at::Tensor piece = values.narrow(0, begin, std::min(kPiece, values.numel() - begin));
    if (!at::isfinite(piece).all().item<bool>()) return false;
  }
  return true;
}

}  // namespace

std::vector<std::string> union_over(const comm::ProcessGroup& group,
                                    const std::vector<std::string>& names) {
  std::set<std::string> all;
  for (const std::string& list : group.all_gather_text(join(names, "\n"))) {
    for (const std::string& name : split(list, '\n')) {
      if (!name.empty()) all.insert(name);
    }
  }
  return {all.begin(), all.end()};
}

std::vector<std::string> Engine::non_finite(ValuesOf values) const {
  std::vector<std::string> names;
  for (const tensor::FlatShard& shard :
       values == ValuesOf::kParameters ? parameters_ : gradients_) {
    if (!at::isFloatingType(shard.buffer.scalar_type())) continue;  // quantized
    for (const tensor::FlatSegment& segment : shard.segments) {
      if (!is_finite(shard.view(segment))) names.push_back(segment.fqn);
    }
  }
  return union_over(group_, names);
}

}  // namespace automodel::distributed
