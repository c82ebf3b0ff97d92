#pragma once

#include <algorithm>
#include <cstdint>

namespace automodel::distributed {

/// The rows of a vocabulary that one of several ranks holds.
struct VocabRange {
  int64_t first = 0;
  int64_t count = 0;
  int64_t stored = 0;  ///< rows of the local parameter, equal on all ranks; the last may be unused

  /// Divides the rows evenly: the first vocab_size mod num_ranks ranks have one row more.
  static VocabRange of(int64_t vocab_size, int64_t rank, int64_t num_ranks) {
    const int64_t least = vocab_size / num_ranks;
    const int64_t rest = vocab_size % num_ranks;
    return {rank * least + std::min(rank, rest), least + (rank < rest ? 1 : 0),
            least + (rest > 0 ? 1 : 0)};
  }
};

}  // namespace automodel::distributed
