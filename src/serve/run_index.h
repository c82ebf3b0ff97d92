#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "serve/run_finder.h"
#include "serve/run_summary.h"

namespace automodel::report {
class RunFollower;
}

namespace automodel::serve {

/// The runs below a folder at one moment.
struct RunList {
  std::string root_name;  ///< of the folder, as valid UTF-8
  double now = 0;         ///< of that moment, since 1970
  std::vector<RunSummary> runs;
  int64_t num_linked = 0;
  bool has_reached_limit = false;
};

/// A page with the text by which a browser tells whether it is still that.
struct Page {
  std::shared_ptr<const std::string> html;
  std::string tag;
};

struct IndexOptions {
  double least_seconds = 1;   ///< files are looked at again after so long at the earliest
  double most_share = 0.05;   ///< of a core that looking and drawing take, however many ask
  size_t most_open_runs = 8;  ///< whose records stay in memory for the next look
  size_t most_open_steps = 4000000;
};

/// What is known of the runs below a folder, kept up to date when it is asked for. Any thread may
/// ask. What lies behind an id is only found by the list of runs, never made a path.
class RunIndex final {
 public:
  /// Throws UserError when `root` is no folder.
  RunIndex(const std::string& root, const IndexOptions& options);
  ~RunIndex();
  RunIndex(const RunIndex&) = delete;
  RunIndex& operator=(const RunIndex&) = delete;

  std::shared_ptr<const RunList> list();

  /// A run's page; null when there is no run of this id. Throws InputError when a file cannot be
  /// read.
  std::shared_ptr<const Page> page(const std::string& id);

 private:
  /// A run whose page was asked for lately.
  struct OpenRun {
    std::mutex mutex;  // of what draws
    std::unique_ptr<report::RunFollower> follower;
    std::shared_ptr<const Page> page;
    bool has_ended = false;
    double next_look = 0;               // monotonic
    std::shared_ptr<const Page> shown;  // this and the next are the index's mutex's
    double last_asked = 0;
    std::atomic<size_t> num_steps{0};  // read while another thread draws
  };

  void look_for_runs();
  std::shared_ptr<OpenRun> open(const std::string& id, const std::string& folder);
  void close_least_used(const std::string& kept);
  std::shared_ptr<const Page> page_of(OpenRun& run, const FoundRun& found,
                                      const RunSummary& summary);

  std::string root_;
  std::string root_name_;
  IndexOptions options_;
  std::mutex mutex_;  // of all below
  double next_look_ = 0;
  std::map<std::string, FoundRun> found_;
  std::map<std::string, SummaryReader> readers_;
  std::shared_ptr<const RunList> list_;
  std::map<std::string, std::shared_ptr<OpenRun>> open_;
};

}  // namespace automodel::serve
