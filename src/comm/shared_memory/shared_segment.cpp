#include "comm/shared_memory/shared_segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "core/descriptor.h"
#include "core/text.h"

namespace automodel::comm {

namespace {

constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW;

std::string reason_of_errno(const char* call) {
  return cat(call, ": ", std::strerror(errno));
}

/// An unnamed file of this many bytes, all of them there; "" or why not.
std::string fill(int fd, size_t num_bytes) {
  if (fd < 0) return reason_of_errno("memfd_create");
  // Reserved now: memory that is short would otherwise end the process in the middle of a copy.
  const int error = ::posix_fallocate(fd, 0, static_cast<off_t>(num_bytes));
  if (error != 0) return cat("posix_fallocate: ", std::strerror(error));
  return ::fcntl(fd, F_ADD_SEALS, kSeals) == 0 ? "" : reason_of_errno("F_ADD_SEALS");
}

/// Why this is not the memory that rank 0 made; "" when it is. Memory that could shrink would end
/// whoever touches it.
std::string find_fault(int fd, size_t num_bytes) {
  // Files of a file system have no seals, or none but that against sealing.
  if (::fcntl(fd, F_GET_SEALS) != kSeals) return "it is no sealed memory";
  struct stat status {};
  if (::fstat(fd, &status) != 0) return reason_of_errno("fstat");
  if (status.st_uid != ::geteuid()) return "it is another user's";
  if (status.st_size != static_cast<off_t>(num_bytes)) {
    return cat("it has ", status.st_size, " bytes in place of ", num_bytes);
  }
  return "";
}

struct Opened {
  int fd = -1;
  std::string problem;
};

/// The memory that `claim` speaks of: "PID FD", of the process that is known to be rank 0.
Opened open_claimed(const std::string& claim, const SegmentPlace& place, size_t num_bytes) {
  const std::vector<std::string> words = split(claim, ' ');
  const auto pid = words.size() == 2 ? parse_int(words[0]) : std::nullopt;
  const auto number = words.size() == 2 ? parse_int(words[1]) : std::nullopt;
  if (!pid || !number || *number < 0 || *number > INT_MAX) {
    return {-1, "the store speaks of no memory"};
  }
  if (*pid != place.maker_pid) return {-1, "the store speaks of another process's memory"};
  const std::string path = cat("/proc/", *pid, "/fd/", *number);
  std::array<char, 64> name{};
  const ssize_t size = ::readlink(path.c_str(), name.data(), name.size());
  if (size < 0) return {-1, reason_of_errno("readlink")};
  // Before it is opened: opening a device or a pipe may do something.
  if (!std::string_view(name.data(), static_cast<size_t>(size)).starts_with("/memfd:")) {
    return {-1, "it is a file, not memory"};
  }
  Opened opened{::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK), ""};
  if (opened.fd < 0) {
    opened.problem = reason_of_errno("open");
  } else {
    opened.problem = find_fault(opened.fd, num_bytes);
  }
  return opened;
}

std::byte* map(int fd, size_t num_bytes) {
  void* data = ::mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

/// What a rank of the group wrote.
std::string read_from(Store& store, const SegmentPlace& place, const std::string& name) {
  const auto text = store.get(cat(place.key, "/", name), place.timeout_seconds);
  if (!text) throw std::runtime_error(cat(name, " did not come"));
  return *text;
}

}  // namespace

void Bell::ring() {
  num_rings_.fetch_add(1, std::memory_order_seq_cst);
  if (num_sleepers_.load(std::memory_order_seq_cst) == 0) return;
  ::syscall(SYS_futex, &num_rings_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Bell::sleep(uint32_t seen, double seconds) {
  timespec duration{};
  duration.tv_sec = static_cast<time_t>(seconds);
  duration.tv_nsec = static_cast<long>((seconds - std::floor(seconds)) * 1e9);
  num_sleepers_.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, &num_rings_, FUTEX_WAIT, seen, &duration, nullptr, 0);
  num_sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

SharedSegment::~SharedSegment() {
  ::munmap(data_, size_);
}

SegmentOutcome share_segment(Store& store, const SegmentPlace& place, size_t num_bytes) {
  // Rank 0 makes the memory; the others open it through its process. Its descriptor is closed once
  // all have, at the end of this function.
  const bool is_maker = place.rank == 0;
  const Descriptor made(is_maker ? ::memfd_create("automodel", MFD_CLOEXEC | MFD_ALLOW_SEALING)
                                 : -1);
  std::string problem = is_maker ? fill(made.get(), num_bytes) : "";
  if (is_maker) {
    const auto pid = static_cast<int64_t>(::getpid());
    store.set(cat(place.key, "/segment"),
              problem.empty() ? cat(pid, " ", made.get()) : std::string());
  }
  const std::string claim = read_from(store, place, "segment");

  SegmentOutcome outcome;
  if (!claim.empty()) {
    const Opened claimed = is_maker ? Opened() : open_claimed(claim, place, num_bytes);
    const Descriptor opened(claimed.fd);
    if (!is_maker) problem = claimed.problem;
    if (problem.empty()) {
      std::byte* data = map(is_maker ? made.get() : opened.get(), num_bytes);
      if (data == nullptr) {
        problem = reason_of_errno("mmap");
      } else {
        outcome.segment = std::make_unique<SharedSegment>(data, num_bytes);
      }
    }
  }
  store.set(cat(place.key, "/mapped/", place.rank), problem);
  for (int rank = 0; rank < place.size; ++rank) {
    const std::string text = read_from(store, place, cat("mapped/", rank));
    if (outcome.why_not.empty()) outcome.why_not = text;
  }
  if (!outcome.why_not.empty()) outcome.segment.reset();
  return outcome;
}

}  // namespace automodel::comm
