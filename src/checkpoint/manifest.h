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

/// Writes DIRECTORY/manifest.json: size and checksum of every file below it. Shard files are
/// entered with their header's checksum (which holds their tensors' checksums), so only headers are
/// read; `known` spares reading other files again. Syncs every directory first. Throws InputError.
void write_manifest(const std::string& directory, std::span<const FileRecord> known);

/// The part of a verification that falls to one of several ranks. Together their parts are all.
struct VerifyShare {
  int rank = 0;
  int world = 1;
  ByteCounter* progress = nullptr;  ///< counts what has been read
};

/// Verifies the files of the manifest; nullopt when all is well, else one line on the first thing
/// that is wrong ("model/x.safetensors: 10 bytes, 20 were written"). The shares of all ranks read
/// every byte once, about as many each; the tensors of a large shard file go to several ranks.
std::optional<std::string> find_damage(const std::string& directory, const VerifyShare& share = {});

}  // namespace automodel::checkpoint
