#include "hub/download_files.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "core/clock.h"
#include "core/error.h"
#include "core/file_lock.h"
#include "core/long_work.h"
#include "core/text.h"
#include "hub/hub_api.h"

namespace automodel::hub {

namespace {

constexpr double kReportSeconds = 10;

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

/// How far a download of all files is.
class DownloadProgress final {
 public:
  DownloadProgress(const FilesRequest& request, const DownloadWatch& watch)
      : watch_(watch), begin_bytes_(watch.bytes->load()) {
    for (const HubFile& file : request.files) total_ += file.num_bytes;
  }

  /// Bytes that were fetched by now, without those of files that another process had fetched.
  uint64_t bytes() const {
    const uint64_t done = watch_.bytes->load() - begin_bytes_;
    return done - std::min({done, watch_.found->load(), total_});
  }
  double seconds() const { return std::max(monotonic_seconds() - begin_seconds_, 1e-3); }
  double speed() const { return static_cast<double>(bytes()) / seconds(); }

  /// "1.5 GiB of 3.0 GiB (50 %), 100 MiB/s, 15 s left"
  std::string text() const {
    const uint64_t done = std::min(watch_.bytes->load() - begin_bytes_, total_);
    const std::string left =
        speed() > 0
            ? cat(", ", format_duration(static_cast<double>(total_ - done) / speed()), " left")
            : "";
    const uint64_t percent = total_ == 0 ? 100 : done * 100 / total_;
    return cat(format_bytes(done), " of ", format_bytes(total_), " (", percent, " %), ",
               format_bytes(static_cast<uint64_t>(speed())), "/s", left);
  }

 private:
  DownloadWatch watch_;
  uint64_t total_ = 0;
  uint64_t begin_bytes_;
  double begin_seconds_ = monotonic_seconds();
};

/// Deals files to threads until all are there or one has failed.
class Workers final {
 public:
  Workers(const FilesRequest& request, const Settings& settings, const DownloadWatch& watch)
      : request_(request), settings_(settings), watch_(watch) {}

  void run() {
    {
      std::vector<std::jthread> threads;
      const auto num_files = static_cast<int>(request_.files.size());
      try {
        for (int i = 0; i < std::min(settings_.num_parallel, num_files); ++i) {
          threads.emplace_back([this] { work(); });
        }
      } catch (const std::exception&) {
        is_cancelled_ = true;  // the threads that there are end before this one goes on
        throw;
      }
    }
    if (failure_) std::rethrow_exception(failure_);
  }

  int num_fetched() const { return num_fetched_; }

 private:
  void work() {
    try {
      http::HttpClient client(http_options(settings_), &is_cancelled_);
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
  const DownloadProgress progress(request, watch);
  Workers workers(request, settings, watch);
  {
    const LongWork told(&reporter, cat("fetching ", describe(request.repository)),
                        [&] { return progress.text(); },
                        {.show_after_seconds = 0.2, .show_seconds = 0.2});
    workers.run();
  }
  const int num_files = workers.num_fetched();
  if (num_files == 0) return;
  reporter.info(cat("fetched ", describe(request.repository), ": ", num_files,
                    num_files == 1 ? " file, " : " files, ", format_bytes(progress.bytes()), " in ",
                    format_duration(progress.seconds()), " (",
                    format_bytes(static_cast<uint64_t>(progress.speed())), "/s)"));
}

}  // namespace automodel::hub
