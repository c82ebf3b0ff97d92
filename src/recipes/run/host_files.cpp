#include "recipes/run/host_files.h"

#include "checkpoint/hf_folder.h"
#include "core/checksum.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
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

std::string checksum_of_files(const std::vector<SharedFile>& files) {
  std::vector<std::string> lines;
  for (const SharedFile& file : files) lines.push_back(cat(file.num_bytes, " ", file.checksum));
  return format_checksum(checksum_of(join(lines, "\n")));
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
  const std::vector<int64_t> others = group.ranks_unlike_first(own);
  if (others.empty()) return;
  const std::vector<std::string> all = group.all_gather_text(own);
  const std::vector<std::string> first = split(all[0], '\n');
  const std::vector<std::string> other = split(all[static_cast<size_t>(others[0])], '\n');
  size_t i = 0;
  while (i < first.size() && i < other.size() && first[i] == other[i]) ++i;
  const auto file_of = [i](const std::vector<std::string>& files) {
    return i < files.size() ? files[i] : "no further file";
  };
  throw UserError(cat("rank ", others[0], " has ", file_of(other), ", and rank 0 has ",
                      file_of(first), ": every host needs the same files"));
}

}  // namespace automodel::recipes
