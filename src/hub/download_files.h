#pragma once

#include <string>
#include <vector>

#include "hub/blob_download.h"
#include "hub/listing.h"
#include "hub/repository.h"
#include "hub/settings.h"

namespace automodel::hub {

/// Files of a commit on their way into a repository's cache folder.
struct FilesRequest {
  Repository repository;
  std::string commit;
  std::string folder;  ///< CACHE/models--org--name
  std::string locks;   ///< CACHE/.locks/models--org--name
  std::vector<HubFile> files;
};

/// Fetches files into blobs/, some at once, each under its lock, and links snapshots/COMMIT/PATH to
/// them once they are whole. Tells of progress, speed and time left. Throws the first failure after
/// all have stopped; what has come stays for the next time.
/// `bytes` counts what is there.
void download_files(const FilesRequest& request, const Settings& settings, Reporter& reporter,
                    ByteCounter& bytes);

}  // namespace automodel::hub
