#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/checksum.h"
#include "core/file.h"

namespace automodel::checkpoint {

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::string_view kIncompleteMarker = ".incomplete";

/// Writes DIRECTORY/manifest.json: size and checksum of every file below it. For shard files it
/// takes the checksum of the header, which contains the tensors' checksums, so only headers are
/// read; files in `known` are not read again. Syncs every directory first. Throws InputError.
void write_manifest(const std::string& directory, std::span<const FileRecord> known);

/// One of several ranks' part of a verification; together the ranks verify everything.
struct VerifyShare {
  int rank = 0;
  int world = 1;
  ByteCounter* progress = nullptr;  ///< counts what has been read
};

/// Verifies the files of the manifest; nullopt when all are right, else one line on the first fault
/// ("model/x.safetensors: 10 bytes, 20 were written"). Together the ranks read every byte once,
/// about equally many each; a large shard file's tensors are divided among ranks.
std::optional<std::string> find_damage(const std::string& directory, const VerifyShare& share = {});

}  // namespace automodel::checkpoint
