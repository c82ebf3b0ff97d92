#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace automodel::serve {

/// A run's folder below the one that is served.
struct FoundRun {
  std::string id;      ///< its path from there; "" for that folder itself
  std::string folder;  ///< its path
};

/// How far is looked.
struct FinderLimits {
  int depth = 8;
  int64_t num_folders = 20000;
};

/// What lies below a folder.
struct FoundRuns {
  std::vector<FoundRun> runs;      ///< by id
  int64_t num_linked = 0;          ///< left out: a file that would be read is no plain file
  bool has_reached_limit = false;  ///< there is more below than was looked at
};

/// Whether all of a run's files that are read are plain files: a link may lead anywhere, and a pipe
/// never ends.
bool has_plain_files(const std::string& folder);

/// Looks for the folders of runs below `root`, itself included. Links to folders, and folders whose
/// names begin with a point, are passed over, and nothing is looked for inside a run but in `root`.
/// Folders that cannot be read are passed over.
FoundRuns find_runs(const std::string& root, const FinderLimits& limits = {});

}  // namespace automodel::serve
