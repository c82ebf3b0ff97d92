#pragma once

#include "comm/groups/process_group.h"

namespace automodel::distributed {

/// The data-parallel ranks and how they share parameters (HSDP): the ranks of `shard` hold
/// different parts, those of `replicate` the same one. Without replicas `shard` is `all`.
struct ShardingGroups {
  comm::ProcessGroup all;
  comm::ProcessGroup shard;
  comm::ProcessGroup replicate;

  /// The groups in which every rank holds a different part.
  static ShardingGroups of(const comm::ProcessGroup& all) {
    return {all, all, comm::ProcessGroup::solo("dp_replicate")};
  }
};

}  // namespace automodel::distributed
