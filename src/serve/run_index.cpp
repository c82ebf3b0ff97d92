#include "serve/run_index.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/file.h"
#include "report/page.h"
#include "report/run_follower.h"
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

/// The way from a run's page to the list: RUN lies at runs/RUN.
std::string way_home(const std::string& id) {
  std::string way = "../";
  for (const char byte : id) way += byte == '/' ? "../" : "";
  return way;
}

}  // namespace

RunIndex::RunIndex(const std::string& root, const IndexOptions& options)
    : root_(whole_path(root)), root_name_(shown_text(file_name(root_))), options_(options) {}

RunIndex::~RunIndex() = default;

void RunIndex::look_for_runs() {
  FoundRuns all = find_runs(root_);
  auto list = std::make_shared<RunList>();
  list->root_name = root_name_;
  list->now = seconds_now();
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
  std::erase_if(open_, [&](const auto& run) { return !found.contains(run.first); });
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

void RunIndex::close_least_used(const std::string& kept) {
  while (true) {
    size_t num_steps = 0;
    auto oldest = open_.end();
    for (auto it = open_.begin(); it != open_.end(); ++it) {
      num_steps += it->second->num_steps;
      const bool is_older =
          oldest == open_.end() || it->second->last_asked < oldest->second->last_asked;
      if (it->first != kept && is_older) oldest = it;
    }
    const bool is_too_much =
        open_.size() > options_.most_open_runs || num_steps > options_.most_open_steps;
    if (!is_too_much || oldest == open_.end()) return;
    open_.erase(oldest);
  }
}

std::shared_ptr<const Page> RunIndex::page(const std::string& id) {
  const auto list = this->list();
  const auto summary = std::ranges::find(list->runs, id, &RunSummary::id);
  if (summary == list->runs.end()) return nullptr;
  std::shared_ptr<OpenRun> run;
  std::shared_ptr<const Page> shown;
  FoundRun found;
  {
    const std::lock_guard lock(mutex_);
    const auto known = found_.find(id);
    if (known == found_.end()) return nullptr;  // removed since
    found = known->second;
    auto& open = open_[id];
    if (open == nullptr) open = std::make_shared<OpenRun>();
    open->last_asked = monotonic_seconds();
    run = open;
    shown = open->shown;
    close_least_used(id);
  }
  std::unique_lock drawing(run->mutex, std::try_to_lock);
  if (!drawing.owns_lock()) {
    if (shown != nullptr) return shown;  // until the one that is being drawn is there
    drawing.lock();
  }
  shown = page_of(*run, found, *summary);
  const std::lock_guard lock(mutex_);
  return run->shown = shown;
}

std::shared_ptr<const Page> RunIndex::page_of(OpenRun& run, const FoundRun& found,
                                              const RunSummary& summary) {
  if (run.page != nullptr && monotonic_seconds() < run.next_look) return run.page;
  bool has_changed = run.page == nullptr;
  if (run.follower == nullptr) {
    run.follower = std::make_unique<report::RunFollower>(found.folder, summary.name);
  }
  const double begin = monotonic_seconds();  // what was read above is not read again
  has_changed |= run.follower->update();
  const bool has_ended = summary.status != RunStatus::kRunning;
  has_changed |= std::exchange(run.has_ended, has_ended) != has_ended;
  if (has_changed) {
    report::LivePage live;
    live.has_end = has_ended;
    live.home = way_home(found.id);
    auto page = std::make_shared<Page>();
    page->html =
        std::make_shared<const std::string>(report::report_page({run.follower->run()}, live));
    page->tag = entity_tag(*page->html);
    run.page = std::move(page);
  }
  run.num_steps = run.follower->run().steps.size();
  run.next_look = next_look_after(begin, options_);
  return run.page;
}

}  // namespace automodel::serve
