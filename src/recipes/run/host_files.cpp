#include "recipes/run/host_files.h"

#include <algorithm>
#include <deque>
#include <span>

#include "checkpoint/hf_folder.h"
#include "checkpoint/safetensors_header.h"
#include "core/checksum.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "datasets/rows/fingerprint.h"
#include "tensor/dtype.h"

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

std::string checksum_of_weights(const std::string& folder) {
  constexpr size_t kMostRead = 4096;
  constexpr uint64_t kPieceBytes = 2048;
  const auto weights = checkpoint::HfFolder::open(folder);
  struct Place {
    const checkpoint::TensorEntry* entry;
    size_t file;
  };
  std::vector<Place> places;
  std::deque<DataFile> files;
  for (size_t i = 0; i < weights.file_names().size(); ++i) {
    files.emplace_back(path_join(folder, weights.file_names()[i]));
    for (const checkpoint::TensorEntry& entry : weights.file(i).tensors()) {
      places.push_back({&entry, i});
    }
  }
  std::ranges::sort(places, {}, [](const Place& place) { return place.entry->name; });
  const size_t step = places.size() / kMostRead + 1;
  Checksum sum;
  const auto add = [&](const std::string& bytes) { sum.add(std::as_bytes(std::span(bytes))); };
  for (size_t i = 0; i < places.size(); ++i) {
    const auto& [entry, file] = places[i];
    add(cat(entry->name, " ", tensor::dtype_name(entry->dtype)));
    for (const int64_t size : entry->shape) add(cat(" ", size));
    if (i % step != 0) continue;
    const uint64_t num_bytes = entry->num_bytes();
    const uint64_t last = num_bytes - std::min(num_bytes, kPieceBytes);
    for (const uint64_t at : {uint64_t{0}, last / 2, last}) {
      add(files[file].read(entry->begin + at, std::min(num_bytes, kPieceBytes)));
    }
  }
  return format_checksum(sum.value());
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
