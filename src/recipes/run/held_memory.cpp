#include "recipes/run/held_memory.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace automodel::recipes {

namespace {

int64_t bytes_on(at::Device device, const std::vector<tensor::FlatShard>& shards) {
  int64_t bytes = 0;
  for (const tensor::FlatShard& shard : shards) {
    const bool is_there =
        shard.buffer.device().type() == device.type() && shard.buffer.storage().nbytes() > 0;
    if (is_there) bytes += static_cast<int64_t>(shard.buffer.nbytes());
  }
  return bytes;
}

}  // namespace

Json held_memory(const SessionModel& model, at::Device device, uint64_t peak_bytes) {
  const distributed::Engine& engine = model.engine();
  const int64_t parameters = bytes_on(device, engine.parameters());
  const int64_t gradients = bytes_on(device, engine.gradients());
  int64_t optimizer = 0;
  for (const optim::OptimizerState& state : model.optimizer->state()) {
    optimizer += bytes_on(device, state.shards);
  }
  const int64_t all = parameters + gradients + optimizer;
  const auto peak = static_cast<int64_t>(peak_bytes);
  std::vector<std::pair<const char*, int64_t>> parts;
  if (model.stages) {
    parts = {{gradients > 0 ? "parameters, gradients and optimizer state"
                            : "parameters and optimizer state",
              all}};
  } else {
    parts = {{"parameters", parameters}, {"gradients", gradients}, {"optimizer state", optimizer}};
  }
  // Gradients that have no memory between steps take turns with activations.
  parts.emplace_back(
      gradients > 0 ? "activations and the rest" : "gradients, activations and the rest",
      std::max<int64_t>(peak - all, 0));
  Json listed = Json::array();
  for (const auto& [name, bytes] : parts) {
    if (bytes > 0) listed.push_back(Json::Object{{"name", name}, {"bytes", bytes}});
  }
  Json fields = Json::object();
  fields["peak_bytes"] = peak;
  fields["parts"] = std::move(listed);
  return fields;
}

}  // namespace automodel::recipes
