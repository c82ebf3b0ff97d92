#include "hub/blob_download.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "core/descriptor.h"
#include "core/error.h"
#include "core/text.h"
#include "hub/digest.h"
#include "hub/hub_api.h"

namespace automodel::hub {

namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

Digest digest_of(const HubFile& file) {
  return file.sha256.empty() ? Digest::git_sha1(file.num_bytes) : Digest::sha256();
}

/// Sums up a file that grows, in a thread of its own: the connection does not wait for it.
class FollowingDigest final {
 public:
  FollowingDigest(int fd, const HubFile& file)
      : fd_(fd), digest_(digest_of(file)), thread_([this] { follow(); }) {}
  ~FollowingDigest() {
    {
      const std::lock_guard lock(mutex_);
      is_stopped_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  FollowingDigest(const FollowingDigest&) = delete;
  FollowingDigest& operator=(const FollowingDigest&) = delete;

  /// The file has `num_bytes` bytes now.
  void grow_to(uint64_t num_bytes) {
    const std::lock_guard lock(mutex_);
    num_bytes_ = num_bytes;
    if (num_bytes - num_read_ >= kPieceBytes) changed_.notify_all();
  }

  /// The digest of the file's first `num_bytes`. Called once.
  std::string finish(uint64_t num_bytes) {
    {
      std::unique_lock lock(mutex_);
      num_bytes_ = num_bytes;
      is_last_ = true;
      changed_.notify_all();
      changed_.wait(lock, [&] { return num_read_ >= num_bytes || has_failed_; });
    }
    return digest_.finish();
  }

 private:
  void follow() {
    std::string piece(kPieceBytes, '\0');
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] {
        return is_stopped_ || num_bytes_ - num_read_ >= kPieceBytes ||
               (is_last_ && num_bytes_ > num_read_);
      });
      if (is_stopped_) return;
      const size_t wanted = std::min<uint64_t>(kPieceBytes, num_bytes_ - num_read_);
      const uint64_t at = num_read_;
      lock.unlock();
      const ssize_t got = ::pread(fd_, piece.data(), wanted, static_cast<off_t>(at));
      if (got > 0) digest_.add(std::string_view(piece).substr(0, static_cast<size_t>(got)));
      start_writing(at);
      lock.lock();
      if (got <= 0) {  // the checksum will be wrong, which says enough
        has_failed_ = true;
        changed_.notify_all();
        return;
      }
      num_read_ += static_cast<uint64_t>(got);
      changed_.notify_all();
    }
  }

  /// Has the kernel begin to write what was summed up, so that little is left when all has come.
  void start_writing(uint64_t num_summed) {
    constexpr uint64_t kAtOnce = uint64_t{32} << 20;
    if (num_summed - num_writing_ < kAtOnce) return;
    ::sync_file_range(fd_, static_cast<off_t>(num_writing_),
                      static_cast<off_t>(num_summed - num_writing_), SYNC_FILE_RANGE_WRITE);
    num_writing_ = num_summed;
  }

  int fd_;
  Digest digest_;
  uint64_t num_writing_ = 0;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  uint64_t num_bytes_ = 0;
  uint64_t num_read_ = 0;
  bool is_last_ = false;
  bool is_stopped_ = false;
  bool has_failed_ = false;
  std::thread thread_;
};

/// PATH.incomplete, which survives whatever ends the process.
class IncompleteFile final : public http::HttpSink {
 public:
  IncompleteFile(const BlobRequest& request, const DownloadWatch& watch)
      : request_(request),
        path_(request.path + ".incomplete"),
        file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)),
        bytes_(*watch.bytes),
        found_(*watch.found) {
    if (file_.get() < 0) fail("write");
    const off_t size = ::lseek(file_.get(), 0, SEEK_END);
    if (size < 0) fail("read");
    num_bytes_ = most_bytes_ = num_found_ = static_cast<uint64_t>(size);
    bytes_.fetch_add(num_bytes_);
    found_.fetch_add(num_found_);
    digest_.emplace(file_.get(), request.file);
    digest_->grow_to(num_bytes_);
    if (num_bytes_ > request.file.num_bytes) restart();
  }
  ~IncompleteFile() override {
    digest_.reset();
    if (num_bytes_ == 0) ::unlink(path_.c_str());
  }
  IncompleteFile(const IncompleteFile&) = delete;
  IncompleteFile& operator=(const IncompleteFile&) = delete;

  uint64_t num_bytes() const { return num_bytes_; }
  bool has_all() const { return num_bytes_ == request_.file.num_bytes; }
  /// Whether it has become longer than ever since it was asked last; bytes that come again do not
  /// count.
  bool has_grown() { return std::exchange(has_grown_, false); }

  /// From nothing: what it had is wrong.
  void restart() {
    rewind();
    most_bytes_ = 0;
  }
  /// From nothing: what it had comes again.
  void rewind() {
    digest_.reset();
    if (::ftruncate(file_.get(), 0) != 0 || ::lseek(file_.get(), 0, SEEK_SET) != 0) fail("write");
    found_.fetch_sub(std::exchange(num_found_, 0));  // it will have been fetched
    bytes_.fetch_sub(std::exchange(num_bytes_, 0));
    digest_.emplace(file_.get(), request_.file);
  }

  std::string begin(const http::HttpHead& head) override {
    std::string etag = head.kept_field("x-linked-etag");
    if (etag.size() >= 2 && etag.front() == '"') etag = etag.substr(1, etag.size() - 2);
    if (!etag.empty() && etag != request_.file.etag()) {
      return cat("the file offered is another one (", etag, ")");
    }
    if (head.status == 200) {
      if (num_bytes_ > 0) rewind();  // the server knows no ranges
      return "";
    }
    const std::string range = head.field("content-range");
    if (!range.starts_with(cat("bytes ", num_bytes_, "-"))) {
      return cat("asked for bytes from ", num_bytes_, " on, got '", range, "'");
    }
    return "";
  }

  void write(std::string_view bytes) override {
    if (num_bytes_ + bytes.size() > request_.file.num_bytes) {
      throw HubError(HubFailure::kBroken, cat(request_.what, ": more bytes come than the ",
                                              request_.file.num_bytes, " that are listed"));
    }
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("write");
      bytes.remove_prefix(static_cast<size_t>(written));
      num_bytes_ += static_cast<uint64_t>(written);
      bytes_.fetch_add(static_cast<uint64_t>(written));
    }
    if (num_bytes_ > most_bytes_) {
      most_bytes_ = num_bytes_;
      has_grown_ = true;
    }
    digest_->grow_to(num_bytes_);
  }

  std::string checksum() { return digest_->finish(num_bytes_); }

  /// On the disk, under the name of a whole file.
  void publish() {
    if (::fdatasync(file_.get()) != 0) fail("write");
    rename_path(path_, request_.path);
    sync_directory(parent_path(request_.path));
  }

 private:
  [[noreturn]] void fail(const char* verb) {
    throw InputError(cat("cannot ", verb, " ", path_, ": ", std::strerror(errno)));
  }

  const BlobRequest& request_;
  std::string path_;
  Descriptor file_;
  ByteCounter& bytes_;
  ByteCounter& found_;
  uint64_t num_bytes_ = 0;
  uint64_t most_bytes_ = 0;  // that it has had
  uint64_t num_found_ = 0;   // of `found_`, that were there before this process
  bool has_grown_ = false;
  std::optional<FollowingDigest> digest_;
};

/// Bytes until the file has all of them.
void fill(http::HttpClient& client, const BlobRequest& request, const Settings& settings,
          Reporter& reporter, const Refusal& refusal, IncompleteFile& file) {
  Attempts attempts(client, settings, reporter, request.what);
  bool has_asked = false;
  // An empty file is asked for once: that it may be had is worth knowing.
  while (!file.has_all() || (!has_asked && request.file.num_bytes == 0)) {
    has_asked = true;
    http::HttpAnswer answer = client.download(request.url, file.num_bytes(), file);
    const int status = answer.head.status;
    if (file.has_grown()) attempts.reset();
    const bool is_whole = answer.problem.empty() && (status == 200 || status == 206);
    if (is_whole && file.has_all()) return;
    if (answer.problem.empty() && status == 416) {
      file.rewind();
    } else if (answer.problem.empty() && !is_whole && !is_passing(status)) {
      throw refusal(answer.head, request.what);
    }
    if (is_whole) {
      answer.problem = cat("the answer ended after ", file.num_bytes(), " of ",
                           request.file.num_bytes, " bytes");
    }
    attempts.fail(answer);
  }
}

void check_space(const BlobRequest& request, uint64_t num_present) {
  struct statvfs disk {};
  if (::statvfs(parent_path(request.path).c_str(), &disk) != 0) return;
  const uint64_t free = disk.f_bavail * disk.f_frsize;
  const uint64_t wanted = request.file.num_bytes - std::min(num_present, request.file.num_bytes);
  if (wanted > free) {
    throw InputError(cat(request.what, " has ", format_bytes(request.file.num_bytes), ", ",
                         parent_path(request.path), " has ", format_bytes(free),
                         " free; HF_HOME names another place"));
  }
}

}  // namespace

void download_blob(http::HttpClient& client, const BlobRequest& request, const Settings& settings,
                   const DownloadWatch& watch, const Refusal& refusal) {
  IncompleteFile file(request, watch);
  check_space(request, file.num_bytes());
  const bool is_resumed = file.num_bytes() > 0;
  std::string found;
  for (int attempt = 0; attempt < 2; ++attempt) {
    fill(client, request, settings, *watch.reporter, refusal, file);
    found = file.checksum();
    if (found == request.file.etag()) {
      file.publish();
      return;
    }
    file.restart();
    if (attempt == 0) {
      watch.reporter->warning(cat(request.what, ": the checksum of what ",
                                  is_resumed ? "an earlier download began" : "came",
                                  " is wrong; fetching it again"));
    }
  }
  throw HubError(HubFailure::kBroken, cat(request.what, ": its checksum is ", found,
                                          ", the hub lists ", request.file.etag()));
}

}  // namespace automodel::hub
