#include "comm/groups/collective.h"

#include "core/error.h"

namespace automodel::comm {

std::string_view collective_name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kSend:
      return "send";
    case CollectiveKind::kRecv:
      return "recv";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  AM_CHECK(false);
}

at::Device Collective::device() const {
  if (in.defined()) return in.device();
  return out.defined() ? out.device() : at::Device(at::kCPU);
}

}  // namespace automodel::comm
