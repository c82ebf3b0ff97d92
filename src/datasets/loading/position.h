#pragma once

#include <cstdint>

#include "core/json.h"

namespace automodel::datasets {

/// The position of a stream of batches, counted over all data-parallel ranks; kept in checkpoints.
struct Position {
  int64_t epoch = 0;
  int64_t consumed = 0;       ///< samples returned in this epoch by all ranks together
  bool is_exhausted = false;  ///< the epoch is over
  int64_t num_rows = 0;       ///< of the dataset, to recognise it

  Json to_json() const;

  /// Reads a position and checks it for a dataset of num_rows that num_replicas ranks will share.
  /// Throws InputError.
  static Position from_json(const Json& state, int64_t num_rows, int num_replicas);
};

}  // namespace automodel::datasets
