#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/json.h"

namespace automodel::datasets {

/// Identifies the contents of a data file; kept in checkpoints.
struct DataFingerprint {
  std::string path;
  DataFile::State state;
  uint64_t checksum = 0;  ///< of all bytes, or of a large file's sampled blocks
};

/// Blocks spread evenly over a file, the first at its beginning.
struct BlockSampling {
  uint64_t num_blocks = 0;
  uint64_t block_bytes = 0;
};

/// The checksum of a file's blocks, for files that are too large to be read whole.
uint64_t sampled_checksum(const DataFile& file, const BlockSampling& blocks);

/// The fingerprints of a dataset's files, in their order, for a checkpoint.
Json fingerprints_to_json(const std::vector<DataFingerprint>& files);

/// Throws InputError naming the first file whose contents differ from `saved`, or which is missing
/// or new. Paths and modification times do not matter.
void check_fingerprints(const Json& saved, const std::vector<DataFingerprint>& files);

}  // namespace automodel::datasets
