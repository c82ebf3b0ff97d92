#pragma once

#include <compare>
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
  double least_seconds = 1;  ///< files are looked at again after so long at the earliest
  double most_share = 0.05;  ///< of a core that looking and drawing take, however many ask
  /// How many pages stay in memory for the next look, with the records of their runs. Where a run
  /// has more than `most_rows` steps, four become two, again and again.
  size_t most_pages = 6;
  size_t most_rows = 12000;
  size_t most_open_runs = 8;
};

/// Runs that may be shown beside each other.
inline constexpr size_t kMostCompared = 8;

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

  /// A page of runs, kMostCompared at most; null when there is no run of one of these ids. `home`
  /// is the way from the page to the list. Throws InputError when a file cannot be read.
  std::shared_ptr<const Page> page(const std::vector<std::string>& ids, const std::string& home);

 private:
  /// A run of which a page was asked for lately.
  struct OpenRun {
    std::mutex mutex;  // of all below
    std::unique_ptr<report::RunFollower> follower;
    int64_t num_changes = 0;
    double next_look = 0;  // monotonic
  };
  /// What is shown of one of a page's runs.
  struct Shown {
    int64_t num_changes = -1;
    bool has_ended = false;
    bool operator==(const Shown&) const = default;
  };
  /// A page that was asked for lately.
  struct OpenPage {
    std::mutex mutex;  // of what draws: all but the index's
    std::vector<std::shared_ptr<OpenRun>> runs;
    std::vector<Shown> drawn;
    std::shared_ptr<const Page> page;
    double next_look = 0;
    std::shared_ptr<const Page> shown;  // this and the next are the index's mutex's
    double last_asked = 0;
  };
  /// A run of a page, as the list has it.
  struct Asked {
    FoundRun found;
    std::string name;
    bool has_ended = false;
  };

  /// What a page is made of: its runs, and the way from it to the list, which stands in it.
  struct PageKey {
    std::vector<std::string> ids;
    std::string home;
    auto operator<=>(const PageKey&) const = default;
  };

  void look_for_runs();
  std::vector<Asked> find(const std::vector<std::string>& ids);
  std::shared_ptr<OpenPage> open(const PageKey& key);
  void close_least_used(const PageKey& kept);
  void update(OpenRun& run, const Asked& asked) const;
  std::shared_ptr<const Page> page_of(OpenPage& page, const std::vector<Asked>& asked,
                                      const std::string& home) const;

  std::string root_;
  std::string root_name_;
  IndexOptions options_;
  std::mutex mutex_;  // of all below
  double next_look_ = 0;
  std::map<std::string, FoundRun> found_;
  std::map<std::string, SummaryReader> readers_;
  std::shared_ptr<const RunList> list_;
  std::map<std::string, std::weak_ptr<OpenRun>> open_runs_;
  std::map<PageKey, std::shared_ptr<OpenPage>> open_pages_;
};

/// The way from the page at runs/ID to the list.
std::string way_home(const std::string& id);

}  // namespace automodel::serve
