#include "distributed/plan/unit_simulation.h"

#include <algorithm>
#include <utility>

#include "core/text.h"

namespace automodel::distributed {

namespace {

/// Whether micro-batches' gradients are added up in a buffer of a wider dtype.
bool has_wider_sum(const SimulatedFlat& flat) {
  return flat.bytes->whole_gradients > 0 && flat.bytes->sent != flat.bytes->whole_gradients;
}

}  // namespace

UnitSimulation::UnitSimulation(const std::vector<UnitMemory>& units, const MemoryOptions& options)
    : options_(options), expert_options_(expert_options(options)) {
  for (const UnitMemory& unit : units) {
    auto it = std::find_if(units_.begin(), units_.end(),
                           [&](const SimulatedUnit& known) { return known.name == unit.unit; });
    if (it == units_.end()) {
      it = units_.insert(units_.end(), SimulatedUnit{unit.unit});
      it->options = unit.is_expert ? &expert_options_ : &options_;
      it->is_expert = unit.is_expert;
    }
    it->flats.push_back({&unit});
  }
}

void UnitSimulation::begin_step() {
  for (SimulatedUnit& unit : units_) {
    for (SimulatedFlat& flat : unit.flats) {
      if (flat.bytes->gathered == 0) flat.is_gathered = false;
      flat.is_reduced = false;
    }
  }
}

void UnitSimulation::begin_micro_batch(int64_t number, bool is_kept, bool is_synced) {
  number_ = number;
  is_kept_ = is_kept;
  is_synced_ = is_synced;
  counts_ = {};
}

void UnitSimulation::finish_by_hand() {
  is_kept_ = false;
  is_synced_ = true;
  for (SimulatedUnit& unit : units_) finish_backward(unit);
}

void UnitSimulation::mark(const std::string& what) {
  if (now_.total() <= peak_.total()) return;
  peak_ = now_;
  const bool is_numbered = number_ != 0 && options_.num_micro_batches != 1;
  peak_.name = !is_numbered ? what : cat(what, ", micro-batch ", number_);
}

/// Takes a buffer's memory, once.
void UnitSimulation::allocate(bool& is_allocated, int64_t bytes, int64_t& held) {
  if (!std::exchange(is_allocated, true)) held += bytes;
}

void UnitSimulation::drop(bool& is_allocated, int64_t bytes, int64_t& held) {
  if (std::exchange(is_allocated, false)) held -= bytes;
}

void UnitSimulation::gather(SimulatedUnit& unit, const std::string& when) {
  for (SimulatedFlat& flat : unit.flats) {
    const UnitMemory& bytes = *flat.bytes;
    if (!options_.sharding || flat.is_gathered) continue;
    flat.is_gathered = true;
    now_.gathered += bytes.gathered;
    count_gather(unit, bytes);
    now_.casts += bytes.gather_copy;
    mark(cat("gather at ", when));
    now_.casts -= bytes.gather_copy;
  }
}

void UnitSimulation::count_gather(const SimulatedUnit& unit, const UnitMemory& bytes) {
  if (unit.options->num_parts == 1) return;  // nobody to gather from
  // Replicated parameters are gathered once a step, after their update.
  const int64_t whole = bytes.gathered > 0 ? bytes.gathered : bytes.parameters;
  (unit.is_expert ? counts_.num_expert_gathers : counts_.num_gathers) += 1;
  (unit.is_expert ? counts_.expert_gathered_bytes : counts_.gathered_bytes) += whole;
}

void UnitSimulation::release(SimulatedUnit& unit) {
  for (SimulatedFlat& flat : unit.flats) {
    if (!flat.is_gathered || flat.bytes->gathered == 0) continue;
    flat.is_gathered = false;
    now_.gathered -= flat.bytes->gathered;
  }
}

void UnitSimulation::prepare_gradients(SimulatedUnit& unit) {
  for (SimulatedFlat& flat : unit.flats) {
    if (!flat.bytes->is_trained) continue;
    if (pending_flat_ == &flat) finish_reduction();
    allocate(flat.has_gradients, flat.bytes->whole_gradients, now_.whole_gradients);
    if (!options_.sharding) allocate_own_gradients(flat);
  }
}

void UnitSimulation::allocate_own_gradients(SimulatedFlat& flat) {
  if (flat.bytes->keeps_gradients || std::exchange(flat.has_own_gradients, true)) return;
  now_.gradients += flat.bytes->gradients;
}

void UnitSimulation::free_gradients() {
  now_.gradients = 0;
  for (SimulatedUnit& unit : units_) {
    for (SimulatedFlat& flat : unit.flats) flat.has_own_gradients = false;
  }
}

/// Adds the micro-batch's gradients to those before.
void UnitSimulation::stash(SimulatedFlat& flat) {
  allocate(flat.has_accumulated, flat.bytes->accumulated, now_.whole_gradients);
  mark("sum of gradients");
  drop(flat.has_gradients, flat.bytes->whole_gradients, now_.whole_gradients);
}

void UnitSimulation::finish_backward(SimulatedUnit& unit) {
  if (!is_kept_) release(unit);
  if (!options_.sharding) return;
  for (SimulatedFlat& flat : unit.flats) {
    if (!flat.bytes->is_trained) continue;
    if (is_synced_) {
      start_reduction(unit, flat);
    } else if (has_wider_sum(flat)) {
      stash(flat);
    }
  }
}

void UnitSimulation::start_reduction(SimulatedUnit& unit, SimulatedFlat& flat) {
  const bool is_sharded = unit.options->shards_gradients();
  if (!is_last_backward_ && !is_sharded) return;  // whole gradients are averaged in place, so once
  finish_reduction();
  if (has_wider_sum(flat)) stash(flat);
  pending_ = &unit;
  pending_flat_ = &flat;
  // The first sum of a step is written straight into the gradients.
  const bool is_direct = !flat.is_reduced && flat.bytes->sum_copy == 0;
  pending_copy_ =
      is_direct || !is_sharded ? flat.bytes->sum_copy : flat.bytes->sent / unit.options->num_parts;
  now_.casts += pending_copy_;
  allocate_own_gradients(flat);
  mark(cat("reduction of ", unit.name.empty() ? "the root" : unit.name));
  if (!options_.sharding->overlaps_reductions) finish_reduction();
}

void UnitSimulation::finish_reduction() {
  if (pending_ == nullptr) return;
  const SimulatedUnit& unit = *std::exchange(pending_, nullptr);
  SimulatedFlat& flat = *std::exchange(pending_flat_, nullptr);
  now_.casts -= std::exchange(pending_copy_, 0);
  flat.is_reduced = true;
  drop(flat.has_gradients, flat.bytes->whole_gradients, now_.whole_gradients);
  drop(flat.has_accumulated, flat.bytes->accumulated, now_.whole_gradients);
  if (unit.options->num_parts > 1) {
    (unit.is_expert ? counts_.num_expert_reductions : counts_.num_reductions) += 1;
    (unit.is_expert ? counts_.expert_reduced_bytes : counts_.reduced_bytes) += flat.bytes->sent;
  }
  if (unit.options->num_replicas > 1) {
    counts_.num_replica_reductions += 1;
    counts_.replica_reduced_bytes += flat.bytes->sent / unit.options->num_parts;
  }
}

}  // namespace automodel::distributed
