#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

#include "distributed/fsdp/flat_units.h"
#include "distributed/plan/memory_options.h"

namespace automodel::distributed {

/// One unit's parameters of one dtype and kind; bytes are one rank's, padding included. Every rank
/// holds the same number, as ranges are equal; optimizer state that depends on the tensors in a
/// range (MemoryOptions::optimizer_bytes_of_tensors) is that of the rank with the most.
struct UnitMemory {
  std::string unit;        ///< "" for the root
  bool is_expert = false;  ///< a unit of experts
  at::ScalarType dtype = at::kFloat;
  at::ScalarType computed_dtype = at::kFloat;
  bool is_trained = true;
  int64_t numel = 0;  ///< of the whole unit, padding not counted

  int64_t parameters = 0;  ///< that stay: this rank's range, or the whole where replicated
  int64_t masters = 0;     ///< the range that the optimizer updates beside replicated parameters
  int64_t gradients = 0;   ///< that the optimizer reads
  bool keeps_gradients = true;  ///< whether their memory stays between steps
  int64_t optimizer = 0;
  int64_t gathered = 0;         ///< whole parameters while the unit is in use; 0 when always whole
  int64_t gather_copy = 0;      ///< this rank's range in the dtype of computation
  int64_t whole_gradients = 0;  ///< that one backward adds up; 0 when they stay
  int64_t accumulated = 0;      ///< sum of micro-batches in the dtype of the reduction; 0: none
  int64_t sent = 0;             ///< what the unit's reduction sends
  int64_t sum_copy = 0;         ///< its result where it cannot be written into the gradients
  int64_t host = 0;             ///< what rests in the host's memory beside a device (offloading)
  int64_t updated = 0;          ///< elements that this rank updates there where it computes

  int64_t state() const { return parameters + masters + gradients + optimizer; }
  int64_t kept_gradients() const { return keeps_gradients ? gradients : 0; }
};

/// The bytes of a flat group on one rank, decided as FSDPModule::make_flat decides.
UnitMemory unit_memory(const FlatParameters& group, const MemoryOptions& options);

/// The options of experts that are units of their own, as shard_experts sets them up.
MemoryOptions expert_options(const MemoryOptions& options);

}  // namespace automodel::distributed
