#include "checkpoint/sharded.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <unordered_map>

#include "core/error.h"
#include "core/file.h"
#include "core/parallel.h"
#include "tensor/shard_runs.h"

namespace automodel::checkpoint {

namespace {

constexpr const char* kShardsKey = "automodel.shards";
constexpr const char* kIndexName = "index.json";
constexpr const char* kShardedFormat = "automodel-sharded-1";

Json integers(const std::vector<int64_t>& numbers) {
  Json::Array list;
  for (const int64_t number : numbers) list.emplace_back(number);
  return Json(std::move(list));
}

/// nullopt when it is not a list of integers.
std::optional<std::vector<int64_t>> read_integers(const Json* json) {
  if (json == nullptr || !json->is_array()) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const Json& number : json->as_array()) {
    if (!number.is_int()) return std::nullopt;
    numbers.push_back(number.as_int());
  }
  return numbers;
}

Json spec_to_json(const tensor::ShardSpec& spec, uint64_t checksum) {
  Json json = Json::object();
  json["global"] = integers(spec.global_shape);
  json["offset"] = integers(spec.box_offset);
  json["box"] = integers(spec.box_shape);
  json["flat"] = integers({spec.flat_begin, spec.flat_end});
  json["xxh3"] = Json(format_checksum(checksum));
  return json;
}

/// True when the box is inside the global shape and the flat range inside the box, without
/// overflow.
bool is_sound(const tensor::ShardSpec& spec) {
  const size_t dims = spec.global_shape.size();
  if (spec.box_offset.size() != dims || spec.box_shape.size() != dims) return false;
  int64_t global = 1;
  int64_t box = 1;
  for (size_t dim = 0; dim < dims; ++dim) {
    const int64_t size = spec.global_shape[dim];
    if (size < 0 || spec.box_offset[dim] < 0 || spec.box_shape[dim] < 0) return false;
    if (spec.box_offset[dim] > size || spec.box_shape[dim] > size - spec.box_offset[dim]) {
      return false;
    }
    if (__builtin_mul_overflow(global, size, &global)) return false;
    box *= spec.box_shape[dim];
  }
  return spec.flat_begin >= 0 && spec.flat_begin <= spec.flat_end && spec.flat_end <= box;
}

struct ShardRecord {
  tensor::ShardSpec spec;
  uint64_t checksum = 0;
  std::string of;  // the tensor's name, if the entry is a further box of it
};

/// nullopt when the description is malformed or contradicts itself.
std::optional<ShardRecord> parse_record(const Json& json) {
  const auto global = read_integers(json.find("global"));
  const auto offset = read_integers(json.find("offset"));
  const auto box = read_integers(json.find("box"));
  const auto flat = read_integers(json.find("flat"));
  const Json* checksum = json.find("xxh3");
  if (!global || !offset || !box || !flat || flat->size() != 2) return std::nullopt;
  if (checksum == nullptr || !checksum->is_string()) return std::nullopt;
  const auto value = parse_checksum(checksum->as_string());
  const tensor::ShardSpec spec{*global, *offset, *box, (*flat)[0], (*flat)[1]};
  if (!value || !is_sound(spec)) return std::nullopt;
  return ShardRecord{spec, *value, json.get("of", "")};
}

/// The descriptions of tensors in a shard file's metadata.
class ShardTable final {
 public:
  explicit ShardTable(const SafetensorsFile& file) : file_(file) {
    const std::optional<std::string> text = file.metadata(kShardsKey);
    if (!text) {
      throw InputError(
          cat(file.path(), ": not a shard of a checkpoint: no ", kShardsKey, " in its metadata"));
    }
    const Json json = Json::parse(*text, cat(file.path(), ": ", kShardsKey));
    if (!json.is_object()) {
      throw InputError(cat(file.path(), ": ", kShardsKey, " is ", json.kind()));
    }
    for (const auto& [name, record] : json.as_object()) {
      if (auto parsed = parse_record(record)) records_.emplace(name, std::move(*parsed));
    }
  }

  /// Throws InputError when the tensor's description is absent, malformed or of another size.
  const ShardRecord& at(const TensorEntry& entry) const {
    const auto found = records_.find(entry.name);
    if (found == records_.end() || found->second.spec.numel() != entry.numel()) {
      throw InputError(cat(file_.path(), ": tensor '", entry.name, "': ", kShardsKey,
                           " does not describe it rightly"));
    }
    return found->second;
  }

 private:
  const SafetensorsFile& file_;
  std::unordered_map<std::string, ShardRecord> records_;
};

/// Checksum of a one-dimensional tensor's bytes on any device.
uint64_t checksum_of_tensor(const at::Tensor& values) {
  constexpr int64_t kPiece = int64_t{4} << 20;
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  Checksum checksum;
  const auto add = [&](const at::Tensor& part) {
    checksum.add({static_cast<const std::byte*>(part.data_ptr()), part.nbytes()});
  };
  if (values.is_cpu()) {
    add(values);
    return checksum.value();
  }
  for (int64_t first = 0; first < values.numel(); first += kPiece) {
    const int64_t count = std::min(kPiece, values.numel() - first);
    const at::Tensor part = at::empty({count}, at::TensorOptions().dtype(values.scalar_type()));
    part.copy_(values.narrow(0, first, count));
    add(part);
  }
  return checksum.value();
}

/// The elements in both runs, as a part of `wanted`; numel is 0 when there are none.
tensor::ShardRun overlap(const tensor::ShardRun& wanted, const tensor::ShardRun& held) {
  const int64_t begin = std::max(wanted.global, held.global);
  const int64_t end = std::min(wanted.global + wanted.numel, held.global + held.numel);
  return {begin, wanted.local + (begin - wanted.global), std::max<int64_t>(end - begin, 0)};
}

/// Ranges [begin, end) of local elements, merged.
class Coverage final {
 public:
  void add(int64_t begin, int64_t end) {
    if (!ranges_.empty() && ranges_.back().second == begin) {
      ranges_.back().second = end;  // a box's rows often follow each other
    } else {
      ranges_.emplace_back(begin, end);
    }
  }

  /// The first range within [0, numel) that is not covered; nullopt if all is.
  std::optional<std::pair<int64_t, int64_t>> first_gap(int64_t numel) {
    std::sort(ranges_.begin(), ranges_.end());
    int64_t position = 0;
    for (const auto& [begin, end] : ranges_) {
      if (begin > position) return std::pair(position, begin);
      position = std::max(position, end);
    }
    if (position < numel) return std::pair(position, numel);
    return std::nullopt;
  }

 private:
  std::vector<std::pair<int64_t, int64_t>> ranges_;
};

/// Refuses upstream's directories, which hold torch pickles.
void refuse_pickles(const std::string& directory) {
  for (const std::string& name : list_directory(directory)) {
    if (name.ends_with(".distcp") || name == ".metadata" || name.ends_with(".pt")) {
      throw InputError(cat(directory, ": written by NeMo AutoModel as torch pickles (", name,
                           "), which are never loaded because they can run code"));
    }
  }
}

}  // namespace

std::string ShardFile::name() const {
  char text[32];
  std::snprintf(text, sizeof(text), "shard-%05d-", rank + 1);
  return cat(text, kind, "-00001-of-00001.safetensors");
}

void save_shards(const std::string& directory, const ShardFile& file,
                 std::span<const NamedShards> groups, ByteCounter* progress) {
  std::vector<TensorInfo> infos;
  std::vector<at::Tensor> values;
  std::unordered_map<std::string, int> counts;
  Json shards = Json::object();
  for (const NamedShards& group : groups) {
    for (const tensor::FlatShard& shard : group.shards) {
      for (const tensor::FlatSegment& segment : shard.segments) {
        if (segment.spec.numel() == 0 && segment.spec.global_numel() > 0) continue;
        // Each box of a tensor (q, k and v of a fused projection) has its own entry.
        const std::string tensor = group.prefix + segment.fqn;
        const int number = counts[tensor]++;
        AM_CHECK(number == 0 || segment.spec.box_shape != segment.spec.global_shape, tensor);
        const std::string name = number == 0 ? tensor : cat(tensor, "#", number);
        const bool is_box = segment.spec.numel() == segment.spec.box_numel();
        infos.push_back(
            {name, shard.buffer.scalar_type(),
             is_box ? segment.spec.box_shape : std::vector<int64_t>{segment.spec.numel()}});
        values.push_back(shard.view(segment));
        Json record = spec_to_json(segment.spec, checksum_of_tensor(values.back()));
        if (number > 0) record["of"] = Json(tensor);
        shards.as_object().emplace_back(name, std::move(record));
      }
    }
  }
  const Metadata metadata = {{"format", "pt"},
                             {"automodel.rank", cat(file.rank)},
                             {"automodel.world", cat(file.world)},
                             {kShardsKey, shards.dump()}};
  SafetensorsWriter writer(path_join(directory, file.name()), infos, metadata, progress);
  for (const at::Tensor& value : values) writer.write(value);
  writer.finish();
}

void finish_shards(const std::string& directory, const ShardFile& any_file) {
  Json::Array files;
  for (int rank = 0; rank < any_file.world; ++rank) {
    const std::string name = ShardFile{any_file.kind, rank, any_file.world}.name();
    Json file = Json::object();
    file["name"] = Json(name);
    file["bytes"] = Json(file_size(path_join(directory, name)));
    files.push_back(std::move(file));
  }
  Json index = Json::object();
  index["format"] = Json(kShardedFormat);
  index["world"] = Json(any_file.world);
  index["files"] = Json(std::move(files));
  sync_directory(directory);
  write_file_atomic(path_join(directory, kIndexName), index.dump(2) + "\n");
  sync_directory(directory);
}

ShardedFolder ShardedFolder::open(const std::string& directory) {
  if (!is_directory(directory)) throw InputError(cat(directory, ": no such folder"));
  const std::string index_path = path_join(directory, kIndexName);
  if (!path_exists(index_path)) {
    refuse_pickles(directory);
    throw InputError(cat(directory, ": no ", kIndexName, "; this is not a sharded checkpoint"));
  }
  const Json index = Json::parse_file(index_path);
  if (index.get("format", "") != kShardedFormat) {
    throw InputError(cat(index_path, ": format is not ", kShardedFormat));
  }
  ShardedFolder folder;
  folder.path_ = directory;
  const Json* files = index.find("files");
  if (files == nullptr || !files->is_array()) throw InputError(cat(index_path, ": no list files"));
  for (const Json& file : files->as_array()) {
    const std::string name = file.get("name", "");
    if (name.empty() || name.find('/') != std::string::npos) {
      throw InputError(cat(index_path, ": names a file outside the folder: '", name, "'"));
    }
    const std::string path = path_join(directory, name);
    if (!path_exists(path)) throw InputError(cat(path, ": missing from the checkpoint"));
    const int64_t written = file.get("bytes", -1);
    if (file_size(path) != static_cast<uint64_t>(written)) {
      throw InputError(cat(path, ": ", file_size(path), " bytes, ", written, " were written"));
    }
    folder.add_file(path);
  }
  for (const auto& [name, tensor] : folder.tensors_) folder.names_.push_back(name);
  std::sort(folder.names_.begin(), folder.names_.end());
  return folder;
}

void ShardedFolder::add_file(const std::string& path) {
  files_.emplace_back(path);
  const SafetensorsFile& file = files_.back();
  const ShardTable shards(file);
  for (const TensorEntry& entry : file.tensors()) {
    const ShardRecord& record = shards.at(entry);
    const std::string& name = record.of.empty() ? entry.name : record.of;
    Tensor& tensor = tensors_[name];
    if (tensor.pieces.empty()) {
      tensor.shape = record.spec.global_shape;
      tensor.dtype = entry.dtype;
    } else if (tensor.shape != record.spec.global_shape) {
      throw InputError(cat(path, ": tensor '", name, "' is part of [",
                           join(record.spec.global_shape), "], in other files of [",
                           join(tensor.shape), "]"));
    }
    tensor.pieces.push_back({files_.size() - 1, &entry, record.spec, record.checksum});
  }
}

std::vector<TensorInfo> ShardedFolder::tensors() const {
  std::vector<TensorInfo> infos;
  for (const std::string& name : names_) {
    const Tensor& tensor = tensors_.at(name);
    infos.push_back({name, tensor.dtype, tensor.shape});
  }
  return infos;
}

bool ShardedFolder::contains(std::string_view name) const {
  return tensors_.contains(std::string(name));
}

void ShardedFolder::read(std::string_view name, int64_t first, at::Tensor out) const {
  const auto found = tensors_.find(std::string(name));
  if (found == tensors_.end()) throw InputError(cat(path_, ": no tensor '", name, "' in it"));
  tensor::ShardSpec spec = tensor::ShardSpec::whole(found->second.shape);
  spec.flat_begin = first;
  spec.flat_end = first + out.numel();
  fill({std::string(name), &spec, std::move(out)}, {.verify_partial_pieces = false});
}

void ShardedFolder::verify(const Piece& piece) const {
  const SafetensorsFile& file = files_[piece.file];
  if (file.checksum(*piece.entry) != piece.checksum) {
    throw InputError(
        cat(file.path(), ": tensor '", piece.entry->name, "' is damaged: its checksum differs"));
  }
}

void ShardedFolder::fill(const Target& target, const ShardLoadOptions& options) const {
  Coverage coverage;
  for (const Piece& piece : tensors_.at(target.name).pieces) {
    const SafetensorsFile& file = files_[piece.file];
    if (piece.spec == *target.spec) {
      file.read_elements(*piece.entry, 0, target.out);
      if (options.progress != nullptr) *options.progress += target.out.nbytes();
      const bool is_same = target.out.scalar_type() == piece.entry->dtype;
      if (!is_same) {
        verify(piece);
      } else if (checksum_of_tensor(target.out) != piece.checksum) {
        throw InputError(
            cat(file.path(), ": tensor '", target.name, "' is damaged: its checksum differs"));
      }
      return;
    }
    // Both lists are ordered by position in the global tensor.
    bool is_used = false;
    tensor::ShardRunCursor wanted(*target.spec);
    tensor::ShardRunCursor held(piece.spec);
    while (!wanted.is_at_end() && !held.is_at_end()) {
      const tensor::ShardRun& want = wanted.run();
      const tensor::ShardRun& have = held.run();
      const tensor::ShardRun part = overlap(want, have);
      if (part.numel > 0) {
        const int64_t in_piece = have.local + (part.global - have.global);
        file.read_elements(*piece.entry, in_piece, target.out.narrow(0, part.local, part.numel));
        coverage.add(part.local, part.local + part.numel);
        if (options.progress != nullptr) {
          *options.progress += static_cast<uint64_t>(part.numel) * target.out.itemsize();
        }
        is_used = true;
      }
      if (want.global + want.numel <= have.global + have.numel) {
        wanted.step();
      } else {
        held.step();
      }
    }
    if (is_used && options.verify_partial_pieces) verify(piece);
  }
  if (const auto gap = coverage.first_gap(target.spec->numel())) {
    throw InputError(cat(path_, ": elements [", gap->first, ", ", gap->second,
                         ") of this rank's part of '", target.name, "' are in none of its files"));
  }
}

void ShardedFolder::check_wanted(std::span<const Target> targets) const {
  std::vector<std::string> missing;
  std::vector<std::string> misshapen;
  for (const Target& target : targets) {
    const auto found = tensors_.find(target.name);
    if (found == tensors_.end()) {
      missing.push_back(target.name);
    } else if (found->second.shape != target.spec->global_shape) {
      misshapen.push_back(cat(target.name, " is [", join(found->second.shape),
                              "] in the checkpoint and [", join(target.spec->global_shape),
                              "] here"));
    }
  }
  if (missing.empty() && misshapen.empty()) return;
  std::string text = cat(path_, " does not fit this model:");
  if (!missing.empty()) text += cat("\n  missing ", count_and_first(missing));
  if (!misshapen.empty()) text += cat("\n  of another shape ", count_and_first(misshapen));
  if (!misshapen.empty() && missing.empty() && file_name(path_) == "optim") {
    text +=
        "\n  states in 8 bits lie in blocks of a rank's part of a weight: they continue with the "
        "tp_size that they were saved with";
  }
  throw InputError(text);
}

void ShardedFolder::load(std::span<const NamedShards> wanted,
                         const ShardLoadOptions& options) const {
  std::vector<Target> targets;
  for (const NamedShards& group : wanted) {
    for (const tensor::FlatShard& shard : group.shards) {
      for (const tensor::FlatSegment& segment : shard.segments) {
        targets.push_back({group.prefix + segment.fqn, &segment.spec, shard.view(segment)});
      }
    }
  }
  check_wanted(targets);
  std::stable_sort(targets.begin(), targets.end(), [](const Target& a, const Target& b) {
    return a.spec->numel() > b.spec->numel();
  });
  run_tasks(targets.size(), options.num_threads, [&](size_t i) { fill(targets[i], options); });
}

void load_shards(const std::string& directory, std::span<const NamedShards> wanted,
                 const ShardLoadOptions& options) {
  ShardedFolder::open(directory).load(wanted, options);
}

std::vector<uint64_t> written_checksums(const SafetensorsFile& file) {
  const ShardTable shards(file);
  std::vector<uint64_t> checksums;
  for (const TensorEntry& entry : file.tensors()) checksums.push_back(shards.at(entry).checksum);
  return checksums;
}

}  // namespace automodel::checkpoint
