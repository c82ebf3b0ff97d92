#include "tables/file_copy.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "core/checksum.h"
#include "core/error.h"
#include "core/file.h"
#include "core/file_lock.h"
#include "core/json.h"
#include "core/text.h"

namespace automodel::tables {

namespace {

/// Begins every key: copies of another make-up have another one.
constexpr const char* kFormat = "automodel copy 1";

std::optional<uint64_t> read_checksum(const std::string& path) {
  if (!path_exists(path)) return std::nullopt;
  return parse_checksum(Json::parse_file(path).get("xxh3", ""));
}

void sync_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

/// Removes what processes have left that were killed while they made a copy. Whoever holds the
/// copy's lock calls it, so none of them is being written.
void remove_leftovers(const std::string& folder, const std::string& beginning) {
  for (const std::string& name : list_directory(folder)) {
    if (name.starts_with(beginning)) remove_tree(path_join(folder, name));
  }
}

}  // namespace

FileCopy find_or_make_copy(const std::string& source, const std::string& copies,
                           const std::string& ending,
                           const std::function<void(const std::string& to)>& write) {
  const DataFile::State state = DataFile(source).state();
  // The hub's snapshots are links: one file has one copy.
  const std::string real = std::filesystem::canonical(source).string();
  const std::string key = format_checksum(
      checksum_of(cat(kFormat, "\n", real, "\n", state.num_bytes, "\n", state.modified_ns)));
  const std::string path = path_join(copies, key + ending);
  const std::string note = path_join(copies, key + ".json");
  create_directories(copies);
  const FileLock lock(path_join(copies, key + ".lock"), [] {});
  if (const auto checksum = read_checksum(note); checksum && path_exists(path)) {
    return {path, *checksum};
  }
  remove_leftovers(copies, cat(key, ending, kTemporaryEnding));
  const std::string temporary = cat(path, kTemporaryEnding, unique_suffix());
  try {
    write(temporary);
    sync_file(temporary);
    const uint64_t checksum = checksum_of_file(source);
    if (DataFile(source).state() != state) {
      throw InputError(cat(source, " changed while it was being read"));
    }
    rename_path(temporary, path);
    Json json = Json::object();
    json["source"] = Json(real);
    json["xxh3"] = Json(format_checksum(checksum));
    write_file_atomic(note, json.dump(1) + "\n");
    return {path, checksum};
  } catch (...) {
    remove_tree(temporary);
    throw;
  }
}

}  // namespace automodel::tables
