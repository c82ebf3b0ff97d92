#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"

namespace automodel::hub {

/// A file of a repository at a commit.
struct HubFile {
  std::string path;
  uint64_t num_bytes = 0;
  std::string git_sha1;  ///< of the file, or of LFS's pointer to it
  std::string sha256;    ///< of a large file (LFS); "" for others
  std::string xet_hash;  ///< as listed, kept for Python's sake

  /// What the file is called among the cache's blobs.
  const std::string& etag() const { return sha256.empty() ? git_sha1 : sha256; }
  bool operator==(const HubFile&) const = default;
};

/// The files of an answer of /api/models/ID/tree/COMMIT; folders are left out. Throws InputError
/// that begins with `name` for one that is none, or whose names lead out of a folder.
std::vector<HubFile> read_tree_answer(const Json& answer, const std::string& name);

/// A listing as huggingface_hub keeps it in trees/COMMIT.json of a cached repository.
std::string format_listing(const std::vector<HubFile>& files);

/// nullopt where it is not there, or of another format.
std::optional<std::vector<HubFile>> read_listing(const std::string& path);

}  // namespace automodel::hub
