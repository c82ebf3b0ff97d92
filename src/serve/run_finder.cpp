#include "serve/run_finder.h"

#include <algorithm>
#include <filesystem>

#include "core/file.h"
#include "report/records/run_files.h"

namespace automodel::serve {

namespace {

namespace fs = std::filesystem;

/// Whether report's readers open a file of this name.
bool is_read(const std::string& name) {
  return name == "training.jsonl" || name == "events.jsonl" || name == "run.json" ||
         name == ".lock" || (name.starts_with("validation") && name.ends_with(".jsonl"));
}

/// A walk over folders, which ends at its limits.
class Walk final {
 public:
  Walk(const std::string& root, const FinderLimits& limits) : root_(root), limits_(limits) {}

  FoundRuns take() {
    enter("", 0);
    std::ranges::sort(found_.runs, {}, &FoundRun::id);
    return std::move(found_);
  }

 private:
  void enter(const std::string& id, int depth) {
    const std::string folder = id.empty() ? root_ : path_join(root_, id);
    if (depth > limits_.depth || ++num_folders_ > limits_.num_folders) {
      found_.has_reached_limit = true;
      return;
    }
    if (report::holds_a_run(folder)) {
      if (has_plain_files(folder)) {
        found_.runs.push_back({id, folder});
      } else {
        ++found_.num_linked;
      }
      if (!id.empty()) return;
    }
    for (const std::string& name : folders_in(folder)) {
      enter(id.empty() ? name : path_join(id, name), depth + 1);
    }
  }

  static std::vector<std::string> folders_in(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      std::error_code unknown;
      if (it->symlink_status(unknown).type() != fs::file_type::directory) continue;
      std::string name = it->path().filename().string();
      if (!name.starts_with('.')) names.push_back(std::move(name));
    }
    return names;
  }

  const std::string& root_;
  const FinderLimits& limits_;
  int64_t num_folders_ = 0;
  FoundRuns found_;
};

}  // namespace

bool has_plain_files(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (!is_read(it->path().filename().string())) continue;
    std::error_code unknown;
    if (it->symlink_status(unknown).type() != fs::file_type::regular) return false;
  }
  return !error;
}

FoundRuns find_runs(const std::string& root, const FinderLimits& limits) {
  return Walk(root, limits).take();
}

}  // namespace automodel::serve
