#include "distributed/engine/engine.h"

#include <ATen/Functions.h>

#include <set>

#include "core/text.h"

namespace automodel::distributed {

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
      if (!at::isfinite(shard.view(segment)).all().item<bool>()) names.push_back(segment.fqn);
    }
  }
  return union_over(group_, names);
}

}  // namespace automodel::distributed
