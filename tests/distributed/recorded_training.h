#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/recorded_runs.h"
#include "distributed/engine/engine.h"
#include "distributed/groups/device_mesh.h"

namespace automodel::distributed {

/// The axes of a mesh over a run's groups; axes of the same ranks share one, as in the mesh.
inline DeviceMesh mesh_over(const DeviceMesh& mesh, const comm::Groups& over) {
  std::map<std::string, comm::ProcessGroup> made, groups;
  for (const char* axis : {"pp", "dp_replicate", "dp_shard", "cp", "tp", "dp", "dp_shard_cp",
                           "dp_cp", "ep", "ep_shard"}) {
    if (!mesh.has(axis)) continue;
    const comm::ProcessGroup& group = mesh.group(axis);
    if (group.size() > 1 && !made.contains(group.name())) made.emplace(group.name(), over(group));
    groups.emplace(axis, group.size() > 1 ? made.at(group.name()) : group);
  }
  return DeviceMesh(groups);
}

/// A step of micro-batches: their losses, this rank's gradients and their norm.
inline std::vector<at::Tensor> values_of_a_step(
    Engine& engine, int num_micro_batches, const std::function<at::Tensor(int number)>& loss_of) {
  std::vector<at::Tensor> values;
  for (int i = 0; i < num_micro_batches; ++i) {
    engine.begin_micro_batch(i + 1 == num_micro_batches);
    const at::Tensor loss = loss_of(i);
    loss.backward();
    values.push_back(loss.detach().clone());
    engine.end_micro_batch();
  }
  engine.reduce_gradients();
  for (const tensor::FlatShard& shard : engine.gradients()) values.push_back(shard.buffer.clone());
  values.push_back(at::scalar_tensor(engine.gradient_norm(), at::kDouble));
  return values;
}

}  // namespace automodel::distributed
