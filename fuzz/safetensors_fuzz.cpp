// rooms: checkpoint
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "checkpoint/safetensors.h"
#include "core/error.h"

namespace {

using namespace automodel;

/// Bytes under a path, without a disk.
class MemoryFile final {
 public:
  explicit MemoryFile(std::span<const uint8_t> bytes) : fd_(::memfd_create("fuzz", 0)) {
    const auto size = static_cast<ssize_t>(bytes.size());
    if (fd_ < 0 || ::write(fd_, bytes.data(), bytes.size()) != size) std::abort();
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;

  std::string path() const { return cat("/proc/self/fd/", fd_); }

 private:
  int fd_;
};

/// Every tensor of a file that opens can be read, as a whole and in part.
void read_all(const checkpoint::SafetensorsFile& file) {
  file.header_checksum();
  for (const checkpoint::TensorEntry& entry : file.tensors()) {
    const at::Tensor whole = file.read(entry.name);
    if (whole.sizes() != at::IntArrayRef(entry.shape)) std::abort();
    file.checksum(entry);
    const int64_t numel = whole.numel();
    const tensor::ShardSpec spec{{numel}, {0}, {numel}, numel / 3, numel};
    file.read_shard(entry, spec, whole.reshape({-1}).narrow(0, 0, numel - numel / 3).clone());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const MemoryFile memory({data, size});
  try {
    read_all(checkpoint::SafetensorsFile(memory.path()));
  } catch (const UserError&) {
    return 0;
  }
  return 0;
}
