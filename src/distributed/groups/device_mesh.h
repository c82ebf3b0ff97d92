#pragma once

#include <map>
#include <string>
#include <string_view>

#include "comm/world.h"
#include "distributed/groups/sharding_groups.h"
#include "mesh/mesh.h"

namespace automodel::distributed {

/// The process groups of a mesh by axis name: pp, dp_replicate, dp_shard, cp, tp and the joined dp,
/// dp_shard_cp, dp_cp. Axes with the same ranks share a group.
class DeviceMesh final {
 public:
  /// Makes the groups; every rank of the world does so at the same time, in the same order. With
  /// `ep` above 1 there are the axes ep and ep_shard too.
  DeviceMesh(comm::World& world, const mesh::Mesh& mesh, int ep = 1);
  /// Takes groups that there are already, under any names.
  explicit DeviceMesh(std::map<std::string, comm::ProcessGroup> groups);

  bool has(const std::string& name) const { return groups_.contains(name); }
  /// UserError naming the axes that there are when there is none of this name.
  const comm::ProcessGroup& group(const std::string& name) const;
  int size(const std::string& name) const { return group(name).size(); }
  /// The axis `name`, or where the mesh has none the ranks of two others as one group, `inner`
  /// varying fastest.
  comm::ProcessGroup joined(const std::string& name, const std::string& outer,
                            const std::string& inner) const;

 private:
  std::map<std::string, comm::ProcessGroup> groups_;
};

/// How the ranks of a mesh share parameters: over `shard`, copied over `replicate`; `all` are the
/// ranks whose gradients are averaged. A mesh may be without the axis `all`: it is joined of the
/// other two then.
ShardingGroups sharding_groups(const DeviceMesh& mesh, const std::string& replicate,
                               const std::string& shard, const std::string& all);

}  // namespace automodel::distributed
