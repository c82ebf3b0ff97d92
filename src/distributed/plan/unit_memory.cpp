#include "distributed/plan/unit_memory.h"

#include <algorithm>
#include <iterator>
#include <set>

namespace automodel::distributed {

namespace {

int64_t size_of(at::ScalarType dtype) {
  return static_cast<int64_t>(c10::elementSize(dtype));
}

/// The keys of a layout's parameters.
tensor::KeyMap keys_of(const FlatLayout& layout, const tensor::KeyMap& all) {
  std::set<std::string> parameters;
  for (const LayoutEntry& entry : layout.entries) parameters.insert(entry.parameter);
  tensor::KeyMap keys;
  std::copy_if(all.begin(), all.end(), std::back_inserter(keys),
               [&](const auto& part) { return parameters.contains(part.parameter); });
  return keys;
}

/// Optimizer state of the rank that has the most of it: where the optimizer keeps other state for
/// other tensors, ranks' ranges differ.
int64_t optimizer_bytes(const MemoryOptions& options, const FlatLayout& layout, int64_t num_ranks,
                        at::ScalarType parameter) {
  const int64_t range = layout.range_numel(num_ranks);
  if (!options.optimizer_bytes_of_tensors) {
    return range *
           (options.optimizer_bytes ? options.optimizer_bytes(parameter) : 2 * size_of(parameter));
  }
  const tensor::KeyMap keys = keys_of(layout, options.keys);
  int64_t most = 0;
  for (int64_t begin = 0; begin < layout.numel; begin += range) {
    most = std::max(most, options.optimizer_bytes_of_tensors(
                              segments_in(layout, keys, begin, begin + range), parameter));
  }
  return most;
}

/// What rests on the host: this rank's ranges. The device has a copy of them while it gathers, and
/// of a reduction's result.
void offload(const FlatParameters& group, const MemoryOptions& options, int64_t range,
             UnitMemory& unit) {
  const ShardingOptions& sharding = *options.sharding;
  const at::ScalarType main = sharding.main_dtype.value_or(group.dtype);
  const at::ScalarType reduced = sharding.reduce_dtype.value_or(unit.computed_dtype);
  unit.gather_copy = range * size_of(unit.computed_dtype);
  unit.host = range * size_of(main) + unit.optimizer;
  unit.masters = unit.optimizer = 0;
  if (options.shards_parameters()) unit.parameters = 0;
  if (!group.is_trained) return;
  unit.host += range * size_of(sharding.gradient_dtype.value_or(main));
  unit.gradients = options.shards_gradients() ? 0 : unit.sent;
  unit.keeps_gradients = true;
  unit.sum_copy = range * size_of(reduced);
  unit.updated = 0;
}

void add_sharded_bytes(const FlatParameters& group, const MemoryOptions& options,
                       UnitMemory& unit) {
  const ShardingOptions& sharding = *options.sharding;
  const FlatLayout layout =
      group.layout(size_of(group.dtype), options.num_parts, sharding.border_numel);
  const int64_t range = layout.range_numel(options.num_parts);
  const at::ScalarType main = sharding.main_dtype.value_or(group.dtype);
  const at::ScalarType computed = unit.computed_dtype;
  const at::ScalarType reduced = sharding.reduce_dtype.value_or(computed);
  if (main != computed) unit.gather_copy = range * size_of(computed);
  if (options.shards_parameters()) {
    unit.parameters = range * size_of(main);
    unit.gathered = layout.numel * size_of(computed);
  } else {
    unit.parameters = layout.numel * size_of(computed);
    if (main != computed) unit.masters = range * size_of(main);
  }
  const bool offloads = sharding.offload_policy && !options.device.is_cpu();
  if (!group.is_trained) {
    if (offloads) offload(group, options, range, unit);
    return;
  }
  const at::ScalarType kept = sharding.gradient_dtype.value_or(main);
  unit.updated = range;
  unit.optimizer = optimizer_bytes(options, layout, options.num_parts, main);
  unit.sent = layout.numel * size_of(reduced);
  const bool has_accumulated = reduced != computed;
  if (options.shards_gradients()) {
    unit.gradients = range * size_of(kept);
    unit.whole_gradients = layout.numel * size_of(computed);
    if (has_accumulated) unit.accumulated = unit.sent;
    unit.keeps_gradients = options.is_stage;
  } else {
    // The whole buffer stays, and this rank's range in it is what the optimizer reads.
    unit.gradients = unit.sent + (reduced != kept ? range * size_of(kept) : 0);
    if (has_accumulated) unit.whole_gradients = layout.numel * size_of(computed);
  }
  if (reduced != kept) unit.sum_copy = range * size_of(reduced);
  if (offloads) offload(group, options, range, unit);
}

}  // namespace

MemoryOptions expert_options(const MemoryOptions& options) {
  MemoryOptions own = options;
  if (!options.experts.sharding) return own;
  own.sharding = options.experts.sharding;
  own.num_parts = options.experts.num_parts;
  own.num_replicas = 1;
  return own;
}

UnitMemory unit_memory(const FlatParameters& group, const MemoryOptions& options) {
  UnitMemory unit;
  unit.unit = group.unit;
  unit.dtype = group.dtype;
  unit.computed_dtype = group.dtype;
  unit.is_trained = group.is_trained;
  unit.numel = group.numel();
  if (options.sharding) {
    MemoryOptions own = options;
    if (options.head_dtype && group.unit == options.tables.head) {
      own.sharding->param_dtype = own.sharding->reduce_dtype = options.head_dtype;
    }
    if (group.keeps_dtype) {
      own.sharding->param_dtype.reset();
      own.sharding->main_dtype.reset();
    }
    unit.computed_dtype = own.sharding->param_dtype.value_or(group.dtype);
    add_sharded_bytes(group, own, unit);
    return unit;
  }
  const FlatLayout layout = group.layout(size_of(group.dtype), 1);
  unit.parameters = layout.numel * size_of(group.dtype);
  if (!group.is_trained) return unit;
  unit.gradients = unit.parameters;
  unit.keeps_gradients = options.num_replicas > 1 || options.is_stage || options.records_steps;
  unit.updated = unit.parameters / size_of(group.dtype);
  unit.optimizer = optimizer_bytes(options, layout, 1, group.dtype);
  return unit;
}

}  // namespace automodel::distributed
