#include "hub/listing.h"

#include <algorithm>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "hub/repository.h"

namespace automodel::hub {

namespace {

constexpr int64_t kFormatVersion = 1;

bool is_hex(std::string_view text, size_t size) {
  return text.size() == size && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

uint64_t read_size(const Json& json, std::string_view key) {
  const int64_t size = json.at(key).as_int();
  if (size < 0) throw InputError(cat("a file of ", size, " bytes"));
  return static_cast<uint64_t>(size);
}

void check_file(const HubFile& file) {
  if (!is_inside(file.path)) throw InputError(cat("'", file.path, "' is no path in a repository"));
  const bool is_known =
      is_hex(file.git_sha1, 40) && (file.sha256.empty() || is_hex(file.sha256, 64));
  if (!is_known) throw InputError(cat("'", file.path, "' has no checksum"));
}

}  // namespace

std::vector<HubFile> read_tree_answer(const Json& answer, const std::string& name) {
  std::vector<HubFile> files;
  try {
    for (const Json& entry : answer.as_array()) {
      if (entry.at("type").as_string() != "file") continue;
      HubFile file;
      file.path = entry.at("path").as_string();
      file.num_bytes = read_size(entry, "size");
      file.git_sha1 = entry.at("oid").as_string();
      file.xet_hash = entry.get("xetHash", "");
      if (const Json* lfs = entry.find("lfs"); lfs != nullptr && lfs->is_object()) {
        file.sha256 = lfs->at("oid").as_string();
        file.num_bytes = read_size(*lfs, "size");
      }
      check_file(file);
      files.push_back(std::move(file));
    }
  } catch (const InputError& error) {
    throw InputError(cat(name, ": not a listing of files: ", error.what()));
  }
  return files;
}

std::string format_listing(const std::vector<HubFile>& files) {
  std::vector<HubFile> sorted = files;
  std::sort(sorted.begin(), sorted.end(),
            [](const HubFile& a, const HubFile& b) { return a.path < b.path; });
  Json entries = Json::object();
  for (const HubFile& file : sorted) {
    Json entry = Json::object();
    entry["size"] = Json(file.num_bytes);
    entry["blob_id"] = Json(file.git_sha1);
    if (!file.sha256.empty()) {
      entry["lfs_sha256"] = Json(file.sha256);
      entry["lfs_size"] = Json(file.num_bytes);
    }
    if (!file.xet_hash.empty()) entry["xet_hash"] = Json(file.xet_hash);
    entries.as_object().emplace_back(file.path, std::move(entry));
  }
  Json listing = Json::object();
  listing["format_version"] = Json(kFormatVersion);
  listing["files"] = std::move(entries);
  return listing.dump(1);
}

std::optional<std::vector<HubFile>> read_listing(const std::string& path) {
  if (!path_exists(path)) return std::nullopt;
  try {
    const Json listing = Json::parse_file(path);
    if (listing.get("format_version", 0) != kFormatVersion) return std::nullopt;
    std::vector<HubFile> files;
    for (const auto& [name, entry] : listing.at("files").as_object()) {
      HubFile file{name, read_size(entry, "size"), entry.at("blob_id").as_string(),
                   entry.get("lfs_sha256", ""), entry.get("xet_hash", "")};
      if (!file.sha256.empty()) file.num_bytes = read_size(entry, "lfs_size");
      check_file(file);
      files.push_back(std::move(file));
    }
    return files;
  } catch (const InputError&) {
    return std::nullopt;  // it only saves a question: Python, too, asks again then
  }
}

}  // namespace automodel::hub
