#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/json.h"

namespace automodel::datasets {

/// A data file as it was read: what a checkpoint keeps of it, to know it again.
struct DataFingerprint {
  std::string path;
  DataFile::State state;
  uint64_t checksum = 0;  ///< of all bytes
};

/// What a checkpoint keeps of a dataset's files, in their order.
Json fingerprints_to_json(const std::vector<DataFingerprint>& files);

/// Throws InputError that names the first file whose bytes are others than those that `saved`
/// tells of, or which is one too many or too few. Where the files lie and when they were written
/// makes no difference.
void check_fingerprints(const Json& saved, const std::vector<DataFingerprint>& files);

}  // namespace automodel::datasets
