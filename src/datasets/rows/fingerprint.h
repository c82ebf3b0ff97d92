#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "core/reporter.h"

namespace automodel::datasets {

/// Identifies the contents of a data file; kept in checkpoints.
struct DataFingerprint {
  std::string path;
  DataFile::State state;
  uint64_t checksum = 0;    ///< of all bytes, or of a large file's sampled blocks
  bool is_sampled = false;  ///< the latter
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

/// Whether files have other contents than in `saved`, or are missing or new. Throws InputError
/// naming the first of them; where changes are allowed, tells `reporter` (may be null) of all
/// instead. Paths do not matter, and of files that are compared as a whole modification times
/// neither. A file of which blocks were compared and which has been written since is told to
/// `reporter`: other blocks of it may be others.
bool check_fingerprints(const Json& saved, const std::vector<DataFingerprint>& files,
                        bool allows_changes, Reporter* reporter);

}  // namespace automodel::datasets
