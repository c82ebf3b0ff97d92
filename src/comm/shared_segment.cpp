#include "comm/shared_segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cmath>
#include <cstring>
#include <ctime>
#include <stdexcept>

#include "core/descriptor.h"
#include "core/text.h"

namespace automodel::comm {

namespace {

std::string reason_of_errno(const char* call) {
  return cat(call, ": ", std::strerror(errno));
}

/// An unnamed file of this many bytes, all of them there; "" or why not.
std::string fill(int fd, size_t num_bytes) {
  if (fd < 0) return reason_of_errno("memfd_create");
  // Reserved now: memory that is short would otherwise end the process in the middle of a copy.
  const int error = ::posix_fallocate(fd, 0, static_cast<off_t>(num_bytes));
  return error == 0 ? "" : cat("posix_fallocate: ", std::strerror(error));
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
  const Descriptor made(is_maker ? ::memfd_create("automodel", MFD_CLOEXEC) : -1);
  std::string problem = is_maker ? fill(made.get(), num_bytes) : "";
  if (is_maker) {
    const auto pid = static_cast<int64_t>(::getpid());
    store.set(cat(place.key, "/segment"),
              problem.empty() ? cat("/proc/", pid, "/fd/", made.get()) : std::string());
  }
  const std::string path = read_from(store, place, "segment");

  SegmentOutcome outcome;
  if (!path.empty()) {
    const Descriptor opened(is_maker ? -1 : ::open(path.c_str(), O_RDWR | O_CLOEXEC));
    const int fd = is_maker ? made.get() : opened.get();
    if (fd < 0) {
      problem = reason_of_errno("open");
    } else if (std::byte* data = map(fd, num_bytes); data == nullptr) {
      problem = reason_of_errno("mmap");
    } else {
      outcome.segment = std::make_unique<SharedSegment>(data, num_bytes);
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
