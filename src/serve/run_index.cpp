#include "serve/run_index.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/file.h"
#include "core/timestamp.h"
#include "report/page/page.h"
#include "report/records/run_follower.h"
#include "serve/access.h"

namespace automodel::serve {

namespace {

/// The folder's own path, without links: what is found below it begins with this.
std::string whole_path(const std::string& folder) {
  if (!path_exists(folder)) throw UserError(cat("no such folder: ", folder));
  if (!is_directory(folder)) throw UserError(cat(folder, " is not a folder"));
  std::error_code error;
  const std::string whole = std::filesystem::canonical(folder, error).string();
  if (error) throw UserError(cat("cannot read ", folder, ": ", error.message()));
  list_directory(whole);  // an error now, if it may not be read
  return whole;
}

/// When to look again after work that began at `begin`.
double next_look_after(double begin, const IndexOptions& options) {
  const double now = monotonic_seconds();
  return now + std::max(options.least_seconds, (now - begin) / options.most_share);
}

}  // namespace

RunIndex::RunIndex(const std::string& root, const IndexOptions& options)
    : root_(whole_path(root)), root_name_(shown_text(file_name(root_))), options_(options) {}

RunIndex::~RunIndex() = default;

void RunIndex::look_for_runs() {
  FoundRuns all = find_runs(root_);
  auto list = std::make_shared<RunList>();
  list->root_name = root_name_;
  list->now = unix_seconds();
  list->num_linked = all.num_linked;
  list->has_reached_limit = all.has_reached_limit;
  std::map<std::string, FoundRun> found;
  for (const FoundRun& run : all.runs) {
    const auto reader = readers_.try_emplace(run.id, run, root_name_).first;
    try {
      list->runs.push_back(reader->second.update(list->now));
    } catch (const InputError&) {
      readers_.erase(reader);  // it was removed while it was looked at, or may not be read
      continue;
    }
    found.emplace(run.id, run);
  }
  std::erase_if(readers_, [&](const auto& reader) { return !found.contains(reader.first); });
  std::erase_if(open_pages_, [&](const auto& page) {
    return !std::ranges::all_of(page.first.ids, [&](const auto& id) { return found.contains(id); });
  });
  std::ranges::stable_sort(list->runs, [](const RunSummary& a, const RunSummary& b) {
    const bool a_runs = a.status == RunStatus::kRunning, b_runs = b.status == RunStatus::kRunning;
    return a_runs != b_runs ? a_runs : a.written_seconds > b.written_seconds;
  });
  found_ = std::move(found);
  list_ = std::move(list);
}

std::shared_ptr<const RunList> RunIndex::list() {
  const std::lock_guard lock(mutex_);
  const double begin = monotonic_seconds();
  if (list_ == nullptr || begin >= next_look_) {
    look_for_runs();
    next_look_ = next_look_after(begin, options_);
  }
  return list_;
}

std::vector<RunIndex::Asked> RunIndex::find(const std::vector<std::string>& ids) {
  const auto list = this->list();
  const std::lock_guard lock(mutex_);
  std::vector<Asked> all;
  for (const std::string& id : ids) {
    const auto summary = std::ranges::find(list->runs, id, &RunSummary::id);
    const auto known = found_.find(id);
    // Or it was removed since.
    if (summary == list->runs.end() || known == found_.end()) return {};
    all.push_back({known->second, summary->name, summary->status != RunStatus::kRunning});
  }
  return all;
}

void RunIndex::close_least_used(const PageKey& kept) {
  while (true) {
    std::erase_if(open_runs_, [](const auto& run) { return run.second.expired(); });
    auto oldest = open_pages_.end();
    for (auto it = open_pages_.begin(); it != open_pages_.end(); ++it) {
      const bool is_older =
          oldest == open_pages_.end() || it->second->last_asked < oldest->second->last_asked;
      if (it->first != kept && is_older) oldest = it;
    }
    const bool is_too_much =
        open_pages_.size() > options_.most_pages || open_runs_.size() > options_.most_open_runs;
    if (!is_too_much || oldest == open_pages_.end()) return;
    open_pages_.erase(oldest);
  }
}

std::shared_ptr<RunIndex::OpenPage> RunIndex::open(const PageKey& key) {
  auto& page = open_pages_[key];
  if (page == nullptr) {
    page = std::make_shared<OpenPage>();
    for (const std::string& id : key.ids) {
      auto run = open_runs_[id].lock();
      if (run == nullptr) open_runs_[id] = run = std::make_shared<OpenRun>();
      page->runs.push_back(std::move(run));
    }
  }
  page->last_asked = monotonic_seconds();
  close_least_used(key);
  return page;
}

std::shared_ptr<const Page> RunIndex::page(const std::vector<std::string>& ids,
                                           const std::string& home) {
  AM_CHECK(!ids.empty() && ids.size() <= kMostCompared, ids.size(), " runs");
  const std::vector<Asked> asked = find(ids);
  if (asked.empty()) return nullptr;
  std::shared_ptr<OpenPage> page;
  std::shared_ptr<const Page> shown;
  {
    const std::lock_guard lock(mutex_);
    page = open({ids, home});
    shown = page->shown;
  }
  std::unique_lock drawing(page->mutex, std::try_to_lock);
  if (!drawing.owns_lock()) {
    if (shown != nullptr) return shown;  // until the one that is being drawn is there
    drawing.lock();
  }
  shown = page_of(*page, asked, home);
  const std::lock_guard lock(mutex_);
  return page->shown = shown;
}

void RunIndex::update(OpenRun& run, const Asked& asked) const {
  constexpr uint64_t kPiece = 1 << 21;  // of a file at a time: what is read is not kept
  const double begin = monotonic_seconds();
  if (run.follower == nullptr) {
    run.follower = std::make_unique<report::RunFollower>(
        asked.found.folder, asked.name, report::FollowerLimits{options_.most_rows, kPiece});
    ++run.num_changes;
  } else if (begin >= run.next_look && run.follower->update()) {
    ++run.num_changes;
  } else if (begin < run.next_look) {
    return;
  }
  run.next_look = next_look_after(begin, options_);
}

std::shared_ptr<const Page> RunIndex::page_of(OpenPage& open, const std::vector<Asked>& asked,
                                              const std::string& home) const {
  const double begin = monotonic_seconds();
  if (open.page != nullptr && begin < open.next_look) return open.page;
  // Runs are locked in one order, whatever the order of the page is.
  std::map<OpenRun*, std::unique_lock<std::mutex>> locks;
  for (const auto& run : open.runs) locks.try_emplace(run.get());
  for (auto& [run, lock] : locks) lock = std::unique_lock(run->mutex);
  std::vector<Shown> now;
  report::RunViews views;
  report::LivePage live;
  live.has_end = true;
  live.home = home;
  for (size_t i = 0; i < asked.size(); ++i) {
    OpenRun& run = *open.runs[i];
    update(run, asked[i]);
    now.push_back({run.num_changes, asked[i].has_ended});
    views.emplace_back(run.follower->run());
    live.has_end = live.has_end && asked[i].has_ended;
  }
  if (open.page == nullptr || now != open.drawn) {
    auto page = std::make_shared<Page>();
    page->html = std::make_shared<const std::string>(report::report_page(views, live));
    page->tag = entity_tag(*page->html);
    open.page = std::move(page);
    open.drawn = std::move(now);
  }
  open.next_look = next_look_after(begin, options_);
  return open.page;
}

std::string way_home(const std::string& id) {
  std::string way = "../";
  for (const char byte : id) way += byte == '/' ? "../" : "";
  return way;
}

}  // namespace automodel::serve
