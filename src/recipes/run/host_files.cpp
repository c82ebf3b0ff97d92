#include "recipes/run/host_files.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>

#include "checkpoint/hf_folder.h"
#include "core/checksum.h"
#include "core/error.h"
#include "core/file.h"
#include "datasets/rows/fingerprint.h"

namespace automodel::recipes {

namespace {

std::string line_of(const SharedFile& file) {
  return cat(file.name, ", ", file.num_bytes, " bytes, ", file.checksum);
}

}  // namespace

std::vector<SharedFile> weight_files(const std::string& folder) {
  constexpr datasets::BlockSampling kBlocks{.num_blocks = 16, .block_bytes = 4096};
  std::vector<SharedFile> files;
  const auto weights = checkpoint::HfFolder::open(folder);
  for (const std::string& name : weights.file_names()) {
    const DataFile file(path_join(folder, name));
    files.push_back({cat("weight file ", name), file.size(),
                     format_checksum(datasets::sampled_checksum(file, kBlocks))});
  }
  return files;
}

std::vector<SharedFile> data_files(const Json& stream_state) {
  std::vector<SharedFile> files;
  const Json* list = stream_state.find("files");
  if (list == nullptr || !list->is_array()) return files;
  for (const Json& file : list->as_array()) {
    if (!file.is_object()) continue;
    files.push_back({cat("data file ", file_name(file.get("path", ""))),
                     static_cast<uint64_t>(file.get("bytes", int64_t{0})), file.get("xxh3", "")});
  }
  return files;
}

void check_same_files(const comm::ProcessGroup& group, const std::vector<SharedFile>& files) {
  std::vector<std::string> lines;
  for (const SharedFile& file : files) lines.push_back(line_of(file));
  const std::string own = join(lines, "\n");
  const at::TensorOptions longs = at::TensorOptions().dtype(at::kLong);
  at::Tensor hashes = at::zeros({group.size()}, longs);
  group.all_gather(hashes, at::full({1}, std::bit_cast<int64_t>(checksum_of(own)), longs));
  if (hashes.eq(hashes[0]).all().item<bool>()) return;
  const std::vector<std::string> all = group.all_gather_text(own);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    const std::vector<std::string> first = split(all[0], '\n');
    const std::vector<std::string> other = split(all[rank], '\n');
    for (size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
      const std::string here = i < first.size() ? first[i] : "no further file";
      const std::string there = i < other.size() ? other[i] : "no further file";
      if (here == there) continue;
      throw UserError(cat("rank ", rank, " has ", there, ", and rank 0 has ", here,
                          ": every host needs the same files"));
    }
  }
}

}  // namespace automodel::recipes
