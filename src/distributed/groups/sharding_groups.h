#pragma once

#include "comm/process_group.h"

namespace automodel::distributed {

/// The data-parallel ranks, and how they share the parameters (HSDP): `shard` ranks hold one part
/// each, `replicate` ranks the same part. Without replicas `shard` is all of them.
struct ShardingGroups {
  comm::ProcessGroup all;
  comm::ProcessGroup shard;
  comm::ProcessGroup replicate;

  /// Every rank holds another part.
  static ShardingGroups of(const comm::ProcessGroup& all) {
    return {all, all, comm::ProcessGroup::solo("dp_replicate")};
  }
};

}  // namespace automodel::distributed
