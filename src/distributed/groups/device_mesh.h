#pragma once

#include <map>
#include <string>
#include <string_view>

#include "comm/world/world.h"
#include "distributed/groups/sharding_groups.h"
#include "mesh/mesh.h"

namespace automodel::distributed {

/// The process groups of a mesh by axis name: pp, dp_replicate, dp_shard, cp, tp and the joined dp,
/// dp_shard_cp, dp_cp. Axes with the same ranks share a group.
class DeviceMesh final {
 public:
  /// Makes the groups. Collective over the world. With `ep` above 1 it also has the axes ep and
  /// ep_shard.
  DeviceMesh(comm::World& world, const mesh::Mesh& mesh, int ep = 1);
  /// Takes existing groups, under any names.
  explicit DeviceMesh(std::map<std::string, comm::ProcessGroup> groups);

  bool has(const std::string& name) const { return groups_.contains(name); }
  /// The group of an axis; throws UserError listing the existing axes for an unknown name.
  const comm::ProcessGroup& group(const std::string& name) const;
  int size(const std::string& name) const { return group(name).size(); }
  /// The axis `name`; if the mesh lacks it, the ranks of the axes `outer` and `inner` as one group,
  /// `inner` varying fastest.
  comm::ProcessGroup joined(const std::string& name, const std::string& outer,
                            const std::string& inner) const;

 private:
  std::map<std::string, comm::ProcessGroup> groups_;
};

/// How the ranks of a mesh share parameters: sharded over `shard`, copied over `replicate`, with
/// gradients averaged over `all`. If the mesh lacks the axis `all`, it is joined from the other
/// two.
ShardingGroups sharding_groups(const DeviceMesh& mesh, const std::string& replicate,
                               const std::string& shard, const std::string& all);

}  // namespace automodel::distributed
