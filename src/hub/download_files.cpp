#include "hub/download_files.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "core/clock.h"
#include "core/error.h"
#include "core/file_lock.h"
#include "core/text.h"
#include "hub/hub_api.h"

namespace automodel::hub {

namespace {

constexpr double kReportSeconds = 10;
constexpr double kShowSeconds = 0.2;

/// snapshots/COMMIT/a/b links to ../../../blobs/ETAG.
std::string link_target(const std::string& path, const std::string& etag) {
  std::string target = "../../";
  for (const char c : path) {
    if (c == '/') target += "../";
  }
  return cat(target, "blobs/", etag);
}

void link_file(const FilesRequest& request, const HubFile& file) {
  const std::string link =
      path_join(request.folder, cat("snapshots/", request.commit, "/", file.path));
  create_directories(parent_path(link));
  if (path_exists(link)) return;
  ::unlink(link.c_str());  // one that leads nowhere
  if (::symlink(link_target(file.path, file.etag()).c_str(), link.c_str()) != 0 &&
      errno != EEXIST) {
    throw InputError(cat("cannot link ", link, ": ", std::strerror(errno)));
  }
}

/// Tells how far all files are, from a thread of its own.
class ProgressTeller final {
 public:
  ProgressTeller(const FilesRequest& request, const DownloadWatch& watch)
      : watch_(watch), name_(describe(request.repository)), begin_bytes_(watch.bytes->load()) {
    for (const HubFile& file : request.files) total_ += file.num_bytes;
    thread_ = std::thread([this] { tell_until_stopped(); });
  }
  ~ProgressTeller() {
    {
      const std::lock_guard lock(mutex_);
      is_stopped_ = true;
    }
    stopped_.notify_all();
    thread_.join();
    watch_.reporter->progress("");
  }
  ProgressTeller(const ProgressTeller&) = delete;
  ProgressTeller& operator=(const ProgressTeller&) = delete;

  /// Bytes that have come by now.
  uint64_t come() const {
    return watch_.bytes->load() - begin_bytes_ - std::min(watch_.found->load(), total_);
  }
  double seconds() const { return monotonic_seconds() - begin_seconds_; }

 private:
  std::string text() const {
    const uint64_t done = std::min(watch_.bytes->load() - begin_bytes_, total_);
    const double speed = static_cast<double>(come()) / std::max(seconds(), 1e-3);
    const std::string left =
        speed > 0 ? cat(", ", format_duration(static_cast<double>(total_ - done) / speed), " left")
                  : "";
    const uint64_t percent = total_ == 0 ? 100 : done * 100 / total_;
    return cat("fetching ", name_, ": ", format_bytes(done), " of ", format_bytes(total_), " (",
               percent, " %), ", format_bytes(static_cast<uint64_t>(speed)), "/s", left);
  }

  void tell_until_stopped() {
    double told_at = begin_seconds_;
    std::unique_lock lock(mutex_);
    while (!stopped_.wait_for(lock, std::chrono::duration<double>(kShowSeconds),
                              [this] { return is_stopped_; })) {
      watch_.reporter->progress(text());
      if (monotonic_seconds() - told_at < kReportSeconds) continue;
      watch_.reporter->info(text());
      told_at = monotonic_seconds();
    }
  }

  DownloadWatch watch_;
  std::string name_;
  uint64_t total_ = 0;
  uint64_t begin_bytes_;
  double begin_seconds_ = monotonic_seconds();
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool is_stopped_ = false;
  std::thread thread_;
};

/// Deals files to threads until all are there or one has failed.
class Workers final {
 public:
  Workers(const FilesRequest& request, const Settings& settings, const DownloadWatch& watch)
      : request_(request), settings_(settings), watch_(watch) {}

  void run() {
    std::vector<std::thread> threads;
    const auto num_files = static_cast<int>(request_.files.size());
    for (int i = 0; i < std::min(settings_.num_parallel, num_files); ++i) {
      threads.emplace_back([this] { work(); });
    }
    for (std::thread& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
  }

  int num_fetched() const { return num_fetched_; }

 private:
  void work() {
    http::HttpClient client(http_options(settings_), &is_cancelled_);
    try {
      while (!is_cancelled_) {
        const size_t next = next_++;
        if (next >= request_.files.size()) return;
        fetch(client, request_.files[next]);
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      is_cancelled_ = true;
    }
  }

  void fetch(http::HttpClient& client, const HubFile& file) {
    const std::string what = cat(file.path, " of ", describe(request_.repository));
    const std::string blob = path_join(request_.folder, "blobs/" + file.etag());
    {
      uint64_t seen = 0;
      double told_at = monotonic_seconds();
      const FileLock lock(path_join(request_.locks, file.etag() + ".lock"),
                          [&] { await_other(blob, what, seen, told_at); });
      watch_.bytes->fetch_sub(seen);
      if (path_exists(blob)) {
        watch_.bytes->fetch_add(file.num_bytes);
        watch_.found->fetch_add(file.num_bytes);
      } else {
        download_blob(client,
                      {file, file_url(request_.repository, request_.commit, file.path, settings_),
                       blob, what},
                      settings_, watch_,
                      [this](const http::HttpHead& head, const std::string& named) {
                        return refused(head, request_.repository, named, settings_);
                      });
        ++num_fetched_;
      }
    }
    link_file(request_, file);
  }

  /// Another process fetches this file: what it has counts as progress here.
  void await_other(const std::string& blob, const std::string& what, uint64_t& seen,
                   double& told_at) {
    if (is_cancelled_) throw HubError(HubFailure::kUnreachable, "another download has failed");
    const std::string incomplete = blob + ".incomplete";
    const uint64_t now = path_exists(incomplete) ? file_size(incomplete) : seen;
    watch_.bytes->fetch_add(now - seen);
    seen = now;
    if (monotonic_seconds() - told_at < kReportSeconds) return;
    watch_.reporter->info(
        cat("waiting for another process that fetches ", what, ": it has ", format_bytes(seen)));
    told_at = monotonic_seconds();
  }

  const FilesRequest& request_;
  const Settings& settings_;
  DownloadWatch watch_;
  std::atomic<size_t> next_{0};
  std::atomic<int> num_fetched_{0};
  std::atomic<bool> is_cancelled_{false};
  std::mutex mutex_;
  std::exception_ptr failure_;
};

}  // namespace

void download_files(const FilesRequest& request, const Settings& settings, Reporter& reporter,
                    ByteCounter& bytes) {
  create_directories(path_join(request.folder, "blobs"));
  ByteCounter found{0};
  const DownloadWatch watch{&reporter, &bytes, &found};
  const ProgressTeller teller(request, watch);
  Workers workers(request, settings, watch);
  workers.run();
  const int num_files = workers.num_fetched();
  if (num_files == 0) return;
  const double seconds = std::max(teller.seconds(), 1e-3);
  const uint64_t come = teller.come();
  const auto speed = static_cast<uint64_t>(static_cast<double>(come) / seconds);
  reporter.info(cat("fetched ", describe(request.repository), ": ", num_files,
                    num_files == 1 ? " file, " : " files, ", format_bytes(come), " in ",
                    format_duration(seconds), " (", format_bytes(speed), "/s)"));
}

}  // namespace automodel::hub
