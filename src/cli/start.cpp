#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "comm/device/nccl_environment.h"

namespace {

/// Standard input, output and error that the caller has closed are /dev/null: the next file or
/// socket that is opened would have their number, and get what is written to them.
void open_closed_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // The lowest number that is free is the one that is missing.
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY);
  }
}

int refuse(const char* text) {
  constexpr int kInput = 3;
  std::fprintf(stderr, "%s\n", text);
  return kInput;
}

}  // namespace

/// The program `automodel`: sets what LibTorch's libraries read while they are loaded, then becomes
/// `automodel-main`, which lies beside it.
///
/// OpenMP's threads wait for each other by spinning, by default so long that a run on a machine
/// with other work on it takes ten times as long (each waits out the time slices of those that are
/// not running). A short spin costs nothing where the machine is free.
///
/// oneDNN, which multiplies 16-bit matrices, keeps the code and memory of its last 1024 products by
/// their shapes, LibTorch as many again. Experts' products have other rows every time, so a process
/// filled up with a gigabyte that was never used again; the shapes of a dense model are some 20.
///
/// Arrow's allocator would start a thread as it is loaded, beside which no ranks could be forked.
///
/// glibc's allocator takes large pages where the system lets programs ask for them: LibTorch
/// registers its operators in tens of megabytes of small pieces, each page of which was a fault of
/// its own.
///
/// c10d reads its switches when groups of devices are made, when there are threads, beside which no
/// variable can be set safely.
///
/// c10d's recorder of collectives is one for the process. Two groups that send for the first time
/// at once, from two threads, write to its map without a lock, and the process dies.
int main(int, char** argv) {
  open_closed_descriptors();
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) ::setenv("GOMP_SPINCOUNT", "1000", 0);
  ::setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "32", 0);
  ::setenv("LRU_CACHE_CAPACITY", "32", 0);
  ::setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", 0);
  ::setenv("JE_ARROW_MALLOC_CONF", "background_thread:false", 0);
  for (const char* name : automodel::comm::kNcclSwitches) ::setenv(name, "0", 0);
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", 0);
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const double seconds = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  ::setenv("AUTOMODEL_STARTED", std::to_string(seconds).c_str(),
           1);  // what "ready after" counts from
  std::string path(4096, '\0');
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
  if (size < 0) return refuse("cannot find the program's own file: /proc is not mounted here");
  path.resize(static_cast<size_t>(size));
  path += "-main";
  if (char here[4096]; ::getcwd(here, sizeof(here)) == nullptr && errno == ENOENT) {
    return refuse("the current folder has been removed: change to another one");
  }
  ::execv(path.c_str(), argv);
  std::perror(("cannot start " + path).c_str());
  return 1;
}
