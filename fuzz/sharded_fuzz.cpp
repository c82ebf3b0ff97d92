// rooms: checkpoint
// A folder of a sharded checkpoint. The input has, between lines of three dashes, the header of its
// shard file, how many bytes of zeros follow it, its manifest, and its index ("" for the right
// one).
#include <cstdlib>

#include <ATen/ops/empty.h>

#include "checkpoint/manifest.h"
#include "checkpoint/sharded.h"
#include "core/error.h"
#include "core/file.h"
#include "fuzz/input.h"

namespace {

using namespace automodel;

constexpr const char* kShard = "shard-00001-model-00001-of-00001.safetensors";

/// Every tensor of a folder that opens can be asked for whole, and is there or is missed by name.
void read_all(const checkpoint::ShardedFolder& folder) {
  for (const checkpoint::TensorInfo& info : folder.tensors()) {
    int64_t numel = 1;
    for (const int64_t size : info.shape) {
      if (__builtin_mul_overflow(numel, size, &numel)) std::abort();
    }
    if (numel > 4096) continue;  // more than the file can hold; of zeros, say
    const at::Tensor out = at::empty({numel}, at::TensorOptions().dtype(info.dtype));
    try {
      folder.read(info.name, 0, out);
    } catch (const UserError&) {
      continue;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  std::vector<std::string> parts = fuzz::split_parts(data, size);
  parts.resize(4);
  const size_t num_zeros = std::strtoul(parts[1].c_str(), nullptr, 10) % 4096;
  const std::string shard = fuzz::safetensors_file(parts[0], num_zeros);
  folder.write(kShard, shard);
  folder.write("manifest.json", parts[2]);
  folder.write("index.json",
               parts[3].empty()
                   ? cat(R"({"format":"automodel-sharded-1","world":1,"files":[{"name":")", kShard,
                         R"(","bytes":)", shard.size(), "}]}")
                   : parts[3]);
  try {
    checkpoint::find_damage(folder.path());
  } catch (const UserError&) {
    // A manifest that is none; the folder may be readable still.
  }
  try {
    const auto opened = checkpoint::ShardedFolder::open(folder.path());
    read_all(opened);
    checkpoint::written_checksums(checkpoint::SafetensorsFile(path_join(folder.path(), kShard)));
  } catch (const UserError&) {
    return 0;
  }
  return 0;
}
