#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_source.h"
#include "core/file.h"
#include "core/json.h"
#include "tensor/shard_spec.h"

namespace automodel::checkpoint {

/// Shards whose tensors are stored as prefix + Hugging Face name; the prefix is "" for parameters,
/// "exp_avg." for an optimizer's first moments.
struct NamedShards {
  std::string prefix;
  std::span<const tensor::FlatShard> shards;
};

/// The file that a rank writes in a sharded directory:
/// shard-00001-model-00001-of-00001.safetensors.
struct ShardFile {
  std::string kind = "model";  ///< "model" or "optim"
  int rank = 0;
  int world = 1;

  std::string name() const;
};

/// Writes this rank's file in an existing sharded directory: every segment's elements with their
/// ShardSpec and checksum. Called by all ranks that hold different parts; only one of the replicas.
/// `progress` counts bytes written. AM_CHECK: a tensor occurs once, or as several boxes. Throws
/// InputError (e.g. disk full).
void save_shards(const std::string& directory, const ShardFile& file,
                 std::span<const NamedShards> groups, ByteCounter* progress = nullptr);

/// Writes the directory's index.json, the list of its files. Called by one rank after all have
/// saved.
void finish_shards(const std::string& directory, const ShardFile& any_file);

struct ShardLoadOptions {
  int num_threads = 4;
  /// Whether pieces that are only partly needed are read whole to verify them. Off when the
  /// checkpoint has just been verified.
  bool verify_partial_pieces = true;
  ByteCounter* progress = nullptr;  ///< counts what has been read
};

/// A sharded directory, open for reading; any number of ranks may have written it.
class ShardedFolder final : public TensorSource {
 public:
  /// Throws InputError for a directory without index.json, with missing or wrong files, or made by
  /// upstream (torch pickles).
  static ShardedFolder open(const std::string& directory);

  const std::string& path() const { return path_; }
  std::vector<TensorInfo> tensors() const override;
  bool contains(std::string_view name) const;
  void read(std::string_view name, int64_t first, at::Tensor out) const override;

  /// Fills shards of any layout, converting elements to the buffers' dtypes. Throws InputError
  /// naming what is missing, has another shape, or is damaged.
  void load(std::span<const NamedShards> wanted, const ShardLoadOptions& options) const;

 private:
  struct Piece {
    size_t file = 0;
    const TensorEntry* entry = nullptr;
    tensor::ShardSpec spec;
    uint64_t checksum = 0;
  };
  struct Tensor {
    std::vector<int64_t> shape;
    at::ScalarType dtype = at::kFloat;
    std::vector<Piece> pieces;
  };
  struct Target {
    std::string name;
    const tensor::ShardSpec* spec = nullptr;
    at::Tensor out;
  };

  ShardedFolder() = default;
  void add_file(const std::string& path);
  void check_wanted(std::span<const Target> targets) const;
  void fill(const Target& target, const ShardLoadOptions& options) const;
  void verify(const Piece& piece) const;

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::vector<std::string> names_;  // sorted
  std::unordered_map<std::string, Tensor> tensors_;
};

/// Opens a directory and fills shards from it.
void load_shards(const std::string& directory, std::span<const NamedShards> wanted,
                 const ShardLoadOptions& options = {});

/// The checksums of a shard file's tensors by its header, in the order of file.tensors(). Throws
/// InputError when the header does not describe the tensors correctly.
std::vector<uint64_t> written_checksums(const SafetensorsFile& file);

}  // namespace automodel::checkpoint
