#pragma once

#include <cstdint>

#include "core/json.h"

namespace automodel::datasets {

/// Where a stream of batches stands, counted over all data-parallel ranks: what a checkpoint keeps.
struct Position {
  int64_t epoch = 0;
  int64_t consumed = 0;       ///< samples handed out in this epoch by all ranks together
  bool is_exhausted = false;  ///< the epoch is over
  int64_t num_rows = 0;       ///< of the dataset, to know it again

  Json to_json() const;

  /// Reads and checks a position for a dataset of num_rows that num_replicas ranks share from now
  /// on. Throws InputError.
  static Position from_json(const Json& state, int64_t num_rows, int num_replicas);
};

}  // namespace automodel::datasets
