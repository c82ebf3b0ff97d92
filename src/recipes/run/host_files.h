#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/groups/process_group.h"
#include "core/json.h"

namespace automodel::recipes {

/// A file that all ranks read and that must be the same on all hosts.
struct SharedFile {
  std::string name;  ///< what texts call it, without its folder: "data file train.jsonl"
  uint64_t num_bytes = 0;
  std::string checksum;
};

/// The weight files of a Hugging Face folder: of each, some blocks are compared.
std::vector<SharedFile> weight_files(const std::string& folder);

/// A checksum of a Hugging Face folder's weights, in whatever files they lie: of tensors' names,
/// dtypes and shapes, and of pieces of their bytes (of some thousands of tensors, where there are
/// more). Weights that differ elsewhere alone are not told apart.
std::string checksum_of_weights(const std::string& folder);

/// The files of a dataset, by a BatchStream's state; none where it knows of none.
std::vector<SharedFile> data_files(const Json& stream_state);

/// Throws UserError naming the first file in which some rank differs from rank 0. Collective.
void check_same_files(const comm::ProcessGroup& group, const std::vector<SharedFile>& files);

}  // namespace automodel::recipes
