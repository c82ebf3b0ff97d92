#include "checkpoint/manifest.h"

#include <algorithm>
#include <filesystem>
#include <unordered_map>
#include <vector>

#include "checkpoint/safetensors.h"
#include "checkpoint/sharded.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/parallel.h"

namespace automodel::checkpoint {

namespace {

constexpr int kManifestFormat = 1;
constexpr int kNumThreads = 4;

/// Collects the files below a directory, relative and sorted, and syncs directories on the way.
void collect(const std::string& directory, const std::string& relative,
             std::vector<std::string>& files) {
  for (const std::string& name : list_directory(directory)) {
    const std::string path = path_join(directory, name);
    const std::string inside = relative.empty() ? name : cat(relative, "/", name);
    if (is_directory(path)) {
      collect(path, inside, files);
    } else if (inside != kManifestName && inside != kIncompleteMarker) {
      files.push_back(inside);
    }
  }
  sync_directory(directory);
}

bool is_shard_file(const std::string& relative) {
  const std::string name = file_name(relative);
  return name.starts_with("shard-") && name.ends_with(".safetensors");
}

struct ManifestEntry {
  std::string path;  ///< relative
  uint64_t num_bytes = 0;
  uint64_t checksum = 0;
  bool covers_header_only = false;  ///< a shard file, whose header has the tensors' checksums
};

Json to_json(const ManifestEntry& entry) {
  Json json = Json::object();
  json["path"] = Json(entry.path);
  json["bytes"] = Json(entry.num_bytes);
  json["xxh3"] = Json(format_checksum(entry.checksum));
  json["covers"] = Json(entry.covers_header_only ? "header" : "file");
  return json;
}

std::optional<ManifestEntry> parse_entry(const Json& json) {
  ManifestEntry entry;
  const Json* path = json.find("path");
  const Json* bytes = json.find("bytes");
  const Json* checksum = json.find("xxh3");
  const Json* covers = json.find("covers");
  if (path == nullptr || !path->is_string() || bytes == nullptr || !bytes->is_int() ||
      checksum == nullptr || !checksum->is_string() || covers == nullptr || !covers->is_string()) {
    return std::nullopt;
  }
  const auto value = parse_checksum(checksum->as_string());
  if (!value || bytes->as_int() < 0) return std::nullopt;
  return ManifestEntry{path->as_string(), static_cast<uint64_t>(bytes->as_int()), *value,
                       covers->as_string() == "header"};
}

/// A file, or the tensors of a shard file that begin in part `piece` of its num_pieces parts.
struct VerifyTask {
  size_t entry = 0;
  uint64_t piece = 0;
  uint64_t num_pieces = 1;
  uint64_t num_bytes = 0;
};

/// All tasks of a verification, the same on every rank.
std::vector<VerifyTask> verify_tasks(const std::vector<ManifestEntry>& entries, int world) {
  uint64_t total = 0;
  for (const ManifestEntry& entry : entries) total += entry.num_bytes;
  const uint64_t fair_share = total / static_cast<uint64_t>(world) + 1;
  std::vector<VerifyTask> tasks;
  for (size_t i = 0; i < entries.size(); ++i) {
    const uint64_t bytes = entries[i].num_bytes;
    const uint64_t num_pieces = entries[i].covers_header_only ? bytes / fair_share + 1 : 1;
    for (uint64_t piece = 0; piece < num_pieces; ++piece) {
      tasks.push_back({i, piece, num_pieces, bytes / num_pieces});
    }
  }
  return tasks;
}

/// One rank's tasks: the largest are assigned first, each to the rank with the least work so far.
std::vector<VerifyTask> tasks_of(std::vector<VerifyTask> tasks, const VerifyShare& share) {
  std::stable_sort(tasks.begin(), tasks.end(), [](const VerifyTask& a, const VerifyTask& b) {
    return a.num_bytes > b.num_bytes;
  });
  std::vector<uint64_t> loads(static_cast<size_t>(share.world));
  std::vector<VerifyTask> own;
  for (const VerifyTask& task : tasks) {
    const auto least = std::min_element(loads.begin(), loads.end());
    *least += task.num_bytes + 1;
    if (least - loads.begin() == share.rank) own.push_back(task);
  }
  std::stable_sort(own.begin(), own.end(),
                   [](const VerifyTask& a, const VerifyTask& b) { return a.entry < b.entry; });
  return own;
}

/// One line on the first damaged tensor of a task, "" if there is none.
std::string check_tensors(const SafetensorsFile& file, const VerifyTask& task,
                          ByteCounter* progress) {
  const std::vector<uint64_t> written = written_checksums(file);
  for (size_t i = 0; i < written.size(); ++i) {
    const TensorEntry& entry = file.tensors()[i];
    const auto piece = static_cast<uint64_t>(static_cast<double>(entry.begin) *
                                             static_cast<double>(task.num_pieces) /
                                             static_cast<double>(file.num_bytes()));
    if (std::min(piece, task.num_pieces - 1) != task.piece) continue;
    if (file.checksum(entry, progress) != written[i]) {
      return cat("tensor '", entry.name, "' differs from its checksum");
    }
  }
  return "";
}

/// One line on what is wrong with a file, "" if nothing is.
std::string check_file(const std::string& directory, const ManifestEntry& entry,
                       const VerifyTask& task, ByteCounter* progress) {
  const std::string path = path_join(directory, entry.path);
  if (!path_exists(path)) return cat(entry.path, ": missing");
  try {
    if (file_size(path) != entry.num_bytes) {
      return cat(entry.path, ": ", file_size(path), " bytes, ", entry.num_bytes, " were written");
    }
    if (!entry.covers_header_only) {
      return checksum_of_file(path, progress) == entry.checksum
                 ? ""
                 : cat(entry.path, ": its checksum differs");
    }
    const SafetensorsFile file(path);
    if (file.header_checksum() != entry.checksum) {
      return cat(entry.path, ": its header's checksum differs");
    }
    const std::string damage = check_tensors(file, task, progress);
    return damage.empty() ? "" : cat(entry.path, ": ", damage);
  } catch (const UserError& error) {
    return error.what();  // an unreadable file counts as damaged
  }
}

}  // namespace

void write_manifest(const std::string& directory, std::span<const FileRecord> known) {
  std::unordered_map<std::string, const FileRecord*> records;
  for (const FileRecord& record : known) {
    records[std::filesystem::absolute(record.path).lexically_normal().string()] = &record;
  }
  std::vector<std::string> files;
  collect(directory, "", files);
  Json::Array list;
  for (const std::string& relative : files) {
    const std::string path = path_join(directory, relative);
    ManifestEntry entry{relative, file_size(path), 0, is_shard_file(relative)};
    const auto record = records.find(std::filesystem::absolute(path).lexically_normal().string());
    if (entry.covers_header_only) {
      entry.checksum = SafetensorsFile(path).header_checksum();
    } else if (record != records.end() && record->second->num_bytes == entry.num_bytes) {
      entry.checksum = record->second->checksum;
    } else {
      entry.checksum = checksum_of_file(path);
    }
    list.push_back(to_json(entry));
  }
  Json manifest = Json::object();
  manifest["format"] = Json(kManifestFormat);
  manifest["files"] = Json(std::move(list));
  manifest["xxh3"] = Json(format_checksum(checksum_of(manifest["files"].dump())));
  write_file_atomic(path_join(directory, kManifestName), manifest.dump(1) + "\n");
  sync_directory(directory);
}

std::optional<std::string> find_damage(const std::string& directory, const VerifyShare& share) {
  const std::string path = path_join(directory, kManifestName);
  if (!path_exists(path)) return cat(kManifestName, ": missing");
  std::vector<ManifestEntry> entries;
  try {
    const Json manifest = Json::parse_file(path);
    const Json* files = manifest.find("files");
    if (files == nullptr || !files->is_array() || manifest.get("format", 0) != kManifestFormat) {
      return cat(kManifestName, ": not a manifest of this version");
    }
    if (manifest.get("xxh3", "") != format_checksum(checksum_of(files->dump()))) {
      return cat(kManifestName, ": its checksum differs");
    }
    for (const Json& file : files->as_array()) {
      const std::optional<ManifestEntry> entry = parse_entry(file);
      if (!entry) return cat(kManifestName, ": an entry is malformed");
      entries.push_back(*entry);
    }
  } catch (const UserError& error) {
    return error.what();  // an unreadable file counts as damaged
  }
  const std::vector<VerifyTask> tasks = tasks_of(verify_tasks(entries, share.world), share);
  std::vector<std::string> damages(tasks.size());
  run_tasks(tasks.size(), kNumThreads, [&](size_t i) {
    damages[i] = check_file(directory, entries[tasks[i].entry], tasks[i], share.progress);
  });
  const auto first = std::find_if(damages.begin(), damages.end(),
                                  [](const std::string& damage) { return !damage.empty(); });
  if (first == damages.end()) return std::nullopt;
  return *first;
}

}  // namespace automodel::checkpoint
