#include "distributed/groups/device_mesh.h"

#include "comm/groups/joined_group.h"
#include "core/error.h"

namespace automodel::distributed {

DeviceMesh::DeviceMesh(comm::World& world, const mesh::Mesh& mesh, int ep) {
  for (const char* name :
       {"pp", "dp_replicate", "dp_shard", "cp", "tp", "dp", "dp_shard_cp", "dp_cp"}) {
    groups_.emplace(name, world.split(name, mesh.groups(*mesh::axes_of(name))));
  }
  if (ep == 1) return;
  using mesh::ExpertAxis;
  groups_.emplace("ep", world.split("ep", expert_groups(mesh, ep, ExpertAxis::kEp)));
  groups_.emplace("ep_shard",
                  world.split("ep_shard", expert_groups(mesh, ep, ExpertAxis::kEpShard)));
}

DeviceMesh::DeviceMesh(std::map<std::string, comm::ProcessGroup> groups)
    : groups_(std::move(groups)) {}

const comm::ProcessGroup& DeviceMesh::group(const std::string& name) const {
  const auto found = groups_.find(name);
  if (found != groups_.end()) return found->second;
  std::string names;
  for (const auto& [known, group] : groups_) names += cat(names.empty() ? "" : ", ", known);
  throw UserError(cat("the mesh has no axis '", name, "'; it has ", names));
}

comm::ProcessGroup DeviceMesh::joined(const std::string& name, const std::string& outer,
                                      const std::string& inner) const {
  if (has(name)) return group(name);
  const comm::ProcessGroup& outside = group(outer);
  const comm::ProcessGroup& inside = group(inner);
  if (outside.size() == 1) return inside;
  if (inside.size() == 1) return outside;
  return comm::joined_group(name, outside, inside);
}

ShardingGroups sharding_groups(const DeviceMesh& mesh, const std::string& replicate,
                               const std::string& shard, const std::string& all) {
  return {mesh.joined(all, replicate, shard), mesh.group(shard), mesh.group(replicate)};
}

}  // namespace automodel::distributed
