#include "launcher/control_group.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "core/file.h"
#include "core/text.h"

namespace automodel::launcher {

namespace {

namespace fs = std::filesystem;

/// A small file's text; "" when there is none.
std::string text_of(const std::string& path) {
  return path_exists(path) ? read_file(path) : "";
}

/// The folders of this process's control groups, innermost first: of version 2, else of the named
/// controller of version 1.
std::vector<std::string> group_folders(const SystemFolders& folders,
                                       const std::string& controller) {
  std::vector<std::string> found;
  for (const std::string& line : split(text_of(folders.proc + "/self/cgroup"), '\n')) {
    // NUMBER:CONTROLLERS:PATH, and a path may have colons of its own.
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string named = line.substr(first + 1, second - first - 1);
    const std::vector<std::string> controllers = split(named, ',');
    const bool is_it =
        std::find(controllers.begin(), controllers.end(), controller) != controllers.end();
    if (!named.empty() && !is_it) continue;
    const std::string root =
        cat(folders.sys, "/fs/cgroup", named.empty() ? "" : cat("/", controller));
    for (fs::path group = line.substr(second + 1);; group = group.parent_path()) {
      found.push_back(root + group.string());
      // In a container, the group's path can be that of the host: only the root is there.
      if (!group.has_relative_path()) break;
    }
  }
  return found;
}

/// A number of a group's file; nullopt for "max", absent files and version 1's "no limit".
std::optional<uint64_t> number_in(const std::string& path) {
  const auto value = parse_int(trim(text_of(path)));
  constexpr int64_t kNoLimit = int64_t{1} << 60;
  if (!value || *value < 0 || *value >= kNoLimit) return std::nullopt;
  return static_cast<uint64_t>(*value);
}

}  // namespace

std::optional<uint64_t> memory_limit(const SystemFolders& folders) {
  std::optional<uint64_t> least;
  for (const std::string& group : group_folders(folders, "memory")) {
    for (const char* name : {"/memory.max", "/memory.limit_in_bytes"}) {
      const auto limit = number_in(group + name);
      if (limit && (!least || *limit < *least)) least = limit;
    }
  }
  return least;
}

std::optional<double> core_limit(const SystemFolders& folders) {
  std::optional<double> least;
  for (const std::string& group : group_folders(folders, "cpu")) {
    const std::string max(trim(text_of(group + "/cpu.max")));  // "QUOTA PERIOD"
    const std::vector<std::string> parts = split(max, ' ');
    std::optional<int64_t> quota, period;
    if (parts.size() == 2) {
      quota = parse_int(parts[0]);
      period = parse_int(parts[1]);
    } else {
      quota = parse_int(trim(text_of(group + "/cpu.cfs_quota_us")));
      period = parse_int(trim(text_of(group + "/cpu.cfs_period_us")));
    }
    if (!quota || !period || *quota <= 0 || *period <= 0) continue;
    const double cores = static_cast<double>(*quota) / static_cast<double>(*period);
    if (!least || cores < *least) least = cores;
  }
  return least;
}

}  // namespace automodel::launcher
