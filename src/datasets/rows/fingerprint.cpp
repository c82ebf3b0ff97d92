#include "datasets/rows/fingerprint.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <span>

#include "core/checksum.h"
#include "core/error.h"

namespace automodel::datasets {

namespace {

constexpr const char* kAdvice =
    "; continue with the data that the checkpoint was made with, allow these "
    "(checkpoint.allow_changed_data: true), or begin anew in another checkpoint.checkpoint_dir";

/// "7 bytes, written 2026-01-31 12:00:00 UTC".
std::string describe(uint64_t num_bytes, int64_t modified_ns) {
  const std::time_t seconds = modified_ns / 1'000'000'000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  std::array<char, 64> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &utc);
  return cat(num_bytes, " bytes, written ", text.data());
}

}  // namespace

uint64_t sampled_checksum(const DataFile& file, const BlockSampling& blocks) {
  Checksum checksum;
  const uint64_t step = std::max(file.size() / blocks.num_blocks, blocks.block_bytes);
  for (uint64_t at = 0; at < file.size(); at += step) {
    const std::string block = file.read(at, blocks.block_bytes);
    checksum.add(std::as_bytes(std::span(block)));
  }
  return checksum.value();
}

Json fingerprints_to_json(const std::vector<DataFingerprint>& files) {
  Json::Array list;
  for (const DataFingerprint& file : files) {
    Json json = Json::object();
    json["path"] = file.path;
    json["bytes"] = Json(file.state.num_bytes);
    json["modified_ns"] = file.state.modified_ns;
    json["xxh3"] = format_checksum(file.checksum);
    list.push_back(std::move(json));
  }
  return Json(std::move(list));
}

namespace {

/// How files are others than a checkpoint's, a text for each. Warns of those that were written
/// since and of which only parts are compared.
std::vector<std::string> find_changes(const Json::Array& list,
                                      const std::vector<DataFingerprint>& files,
                                      Reporter* reporter) {
  std::vector<std::string> changes;
  for (size_t i = 0; i < std::min(list.size(), files.size()); ++i) {
    const DataFingerprint& file = files[i];
    const uint64_t checksum = parse_checksum(list[i].get("xxh3", "")).value_or(~file.checksum);
    const auto num_bytes = static_cast<uint64_t>(list[i].get("bytes", 0));
    const int64_t modified_ns = list[i].get("modified_ns", 0);
    const std::string now = describe(file.state.num_bytes, file.state.modified_ns);
    const std::string then = describe(num_bytes, modified_ns);
    if (checksum != file.checksum || num_bytes != file.state.num_bytes) {
      changes.push_back(cat(file.path,
                            " is not the data file that the checkpoint was made with: ", "it has ",
                            now, "; the checkpoint's ", list[i].get("path", ""), " had ", then));
    } else if (file.is_sampled && modified_ns != file.state.modified_ns && reporter != nullptr) {
      reporter->warning(cat(file.path, " has been written since the checkpoint was made (it has ",
                            now, "; then it had ", then,
                            "); it is too large to be compared as a whole, and the blocks of it "
                            "that are compared are the same"));
    }
  }
  if (list.size() != files.size()) {
    const std::string first =
        list.size() < files.size() ? files[list.size()].path : list[files.size()].get("path", "");
    changes.push_back(cat("the dataset has ", files.size(),
                          " data files, that of the checkpoint has ", list.size(),
                          "; the first that only one of them has is ", first));
  }
  return changes;
}

}  // namespace

bool check_fingerprints(const Json& saved, const std::vector<DataFingerprint>& files,
                        bool allows_changes, Reporter* reporter) {
  if (!saved.is_array()) throw InputError("the saved data position is damaged: files is no list");
  const std::vector<std::string> changes = find_changes(saved.as_array(), files, reporter);
  if (changes.empty()) return false;
  if (!allows_changes) throw InputError(changes.front() + kAdvice);
  for (const std::string& change : changes) {
    if (reporter != nullptr) reporter->warning(cat(change, "; it is allowed to change"));
  }
  return true;
}

}  // namespace automodel::datasets
