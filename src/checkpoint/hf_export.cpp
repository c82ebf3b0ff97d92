#include "checkpoint/hf_export.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/file.h"
#include "tensor/dtype.h"

namespace automodel::checkpoint {

namespace {

/// Number of elements in memory at a time.
constexpr int64_t kPiece = int64_t{1} << 20;

std::string numbered_name(size_t index, size_t count) {
  char text[64];
  std::snprintf(text, sizeof(text), "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return text;
}

using FileContents = std::vector<std::vector<TensorInfo>>;

FileContents split_like(const HfFolder& original, std::span<const TensorInfo> tensors) {
  FileContents files(original.file_names().size());
  for (TensorInfo tensor : tensors) {
    const std::optional<std::string> name = find_name(original, tensor.name);
    size_t file = files.size() - 1;
    if (name) {
      const HfFolder::Place place = *original.find(*name);
      file = place.file;
      const bool has_dtype =
          place.quantized == nullptr && tensor::is_plain_float(place.entry->dtype);
      if (tensor::is_plain_float(tensor.dtype) && has_dtype) {
        tensor.dtype = place.entry->dtype;
      }
    }
    files[file].push_back(std::move(tensor));
  }
  return files;
}

FileContents split_by_size(std::span<const TensorInfo> tensors, int64_t max_bytes) {
  FileContents files(1);
  uint64_t bytes = 0;
  for (const TensorInfo& tensor : tensors) {
    if (bytes > 0 && bytes + tensor.num_bytes() > static_cast<uint64_t>(max_bytes)) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().push_back(tensor);
    bytes += tensor.num_bytes();
  }
  return files;
}

/// Files that prepare a model's inputs: texts, and those for the inputs of a tower.
bool is_tokenizer_file(const std::string& name) {
  return name.starts_with("tokenizer") || name.starts_with("vocab.") || name == "merges.txt" ||
         name == "special_tokens_map.json" || name == "added_tokens.json" ||
         name == "spiece.model" || name == "sentencepiece.bpe.model" || name == "tekken.json" ||
         name.starts_with("chat_template.") || name == "preprocessor_config.json" ||
         name == "processor_config.json" || name == "video_preprocessor_config.json";
}

/// The dtype of most exported elements, which is what loading as "auto" uses.
std::optional<at::ScalarType> main_dtype(std::span<const HfFile> files) {
  std::map<at::ScalarType, int64_t> counts;
  for (const HfFile& file : files) {
    for (const TensorInfo& tensor : file.tensors) {
      if (tensor::is_plain_float(tensor.dtype)) counts[tensor.dtype] += tensor.numel();
    }
  }
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == counts.end()) return std::nullopt;
  return most->first;
}

/// Made from the model's config, as upstream does without an original: the special tokens.
Json generation_config(const Json& config) {
  Json out = Json::object();
  out["_from_model_config"] = Json(true);
  const Json* text = config.find("text_config");
  for (const char* key :
       {"bos_token_id", "decoder_start_token_id", "eos_token_id", "pad_token_id"}) {
    const Json* value = config.find(key);
    if (value == nullptr && text != nullptr) value = text->find(key);
    if (value != nullptr && !value->is_null()) out[key] = *value;
  }
  if (const Json* version = config.find("transformers_version")) {
    out["transformers_version"] = *version;
  }
  return out;
}

/// A generation_config.json with more tokens that end what is generated, behind those that it
/// names, or where it names none those of the model's config.json.
std::string with_end_tokens(const std::string& text, const std::string& path, const Json& of_model,
                            std::span<const int64_t> more) {
  Json config = Json::parse(text, path);
  Json::Array tokens;
  const Json* named = config.find("eos_token_id");
  if (named == nullptr || named->is_null()) named = of_model.find("eos_token_id");
  if (named != nullptr && !named->is_null()) {
    if (named->is_array()) {
      tokens = named->as_array();
    } else {
      tokens.push_back(*named);
    }
  }
  for (const int64_t token : more) tokens.emplace_back(token);
  config["eos_token_id"] = Json(tokens);
  return config.dump(2) + "\n";
}

/// A tokenizer_config.json without its chat template; unchanged bytes if it has none.
std::string without_chat_template(const std::string& path) {
  Json config = Json::parse_file(path);
  if (!config.contains("chat_template")) return read_file(path);
  config.erase("chat_template");
  return config.dump(2) + "\n";
}

/// Writes the text files of a folder and collects their records.
class TextWriter final {
 public:
  explicit TextWriter(const std::string& folder) : folder_(folder) {}

  void write(const std::string& name, const std::string& bytes) {
    const std::string path = path_join(folder_, name);
    write_file_atomic(path, bytes);
    records_.push_back({path, bytes.size(), checksum_of(bytes)});
  }
  void copy_tokenizer(const std::string& from, const std::optional<std::string>& chat_template) {
    for (const std::string& name : list_directory(from)) {
      const std::string path = path_join(from, name);
      if (!is_tokenizer_file(name) || is_directory(path)) continue;
      if (chat_template && name.starts_with("chat_template.")) continue;
      const bool may_hold_template = chat_template && name == "tokenizer_config.json";
      write(name, may_hold_template ? without_chat_template(path) : read_file(path));
    }
    if (chat_template) {
      write("chat_template.jinja", *chat_template);
    } else {
      copy_further_templates(from);
    }
  }
  std::vector<FileRecord> take() { return std::move(records_); }

 private:
  /// Chat templates besides the one: for conversations with tools, and others.
  void copy_further_templates(const std::string& from) {
    const std::string further = "additional_chat_templates";
    const std::string source = path_join(from, further);
    if (!is_directory(source)) return;
    create_directories(path_join(folder_, further));
    for (const std::string& name : list_directory(source)) {
      const std::string path = path_join(source, name);
      if (name.ends_with(".jinja") && !is_directory(path)) {
        write(path_join(further, name), read_file(path));
      }
    }
  }

  const std::string& folder_;
  std::vector<FileRecord> records_;
};

std::string index_text(std::span<const HfFile> files) {
  std::map<std::string, std::string> file_of;
  uint64_t total = 0;
  for (const HfFile& file : files) {
    for (const TensorInfo& tensor : file.tensors) {
      file_of[tensor.name] = file.name;
      total += tensor.num_bytes();
    }
  }
  Json::Object map;
  for (const auto& [name, file] : file_of) map.emplace_back(name, Json(file));
  Json index = Json::object();
  index["metadata"]["total_size"] = Json(total);
  index["weight_map"] = Json(std::move(map));
  return index.dump(2) + "\n";
}

}  // namespace

std::vector<HfFile> plan_hf_files(std::span<const TensorInfo> tensors, const HfExport& what) {
  FileContents contents;
  if (!what.original_folder.empty() && has_weights(what.original_folder)) {
    contents = split_like(HfFolder::open(what.original_folder), tensors);
  } else {
    contents = split_by_size(tensors, what.max_file_bytes);
  }
  std::erase_if(contents, [](const auto& file) { return file.empty(); });
  std::vector<HfFile> files;
  for (size_t i = 0; i < contents.size(); ++i) {
    // Tensors with wide elements come first, so that every tensor is aligned to its elements.
    std::stable_sort(contents[i].begin(), contents[i].end(), [](const auto& a, const auto& b) {
      const auto a_bytes = c10::elementSize(a.dtype);
      const auto b_bytes = c10::elementSize(b.dtype);
      return a_bytes != b_bytes ? a_bytes > b_bytes : a.name < b.name;
    });
    files.push_back({numbered_name(i, contents.size()), std::move(contents[i])});
  }
  return files;
}

std::vector<FileRecord> write_hf_weights(const std::string& folder, std::span<const HfFile> files,
                                         const TensorSource& source, const ExportShare& share) {
  create_directories(folder);
  std::vector<FileRecord> records;
  const auto step = static_cast<size_t>(share.world);
  for (size_t i = static_cast<size_t>(share.rank); i < files.size(); i += step) {
    SafetensorsWriter writer(path_join(folder, files[i].name), files[i].tensors, {{"format", "pt"}},
                             share.progress);
    for (const TensorInfo& tensor : files[i].tensors) {
      const int64_t numel = tensor.numel();
      const at::Tensor buffer =
          at::empty({std::min(numel, kPiece)}, at::TensorOptions().dtype(tensor.dtype));
      for (int64_t first = 0; first < numel; first += kPiece) {
        const at::Tensor part = buffer.narrow(0, 0, std::min(kPiece, numel - first));
        source.read(tensor.name, first, part);
        writer.write(part);
      }
    }
    records.push_back(writer.finish());
  }
  return records;
}

namespace {

/// Infinities and NaN as transformers 5 writes them, which is JSON.
Json with_float_objects(const Json& value) {
  if (value.is_double() && !std::isfinite(value.as_double())) {
    const double number = value.as_double();
    Json object = Json::object();
    object["__float__"] = Json(std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity");
    return object;
  }
  Json out = value;
  if (out.is_array()) {
    for (Json& each : out.as_array()) each = with_float_objects(each);
  } else if (out.is_object()) {
    for (auto& [key, each] : out.as_object()) each = with_float_objects(each);
  }
  return out;
}

/// The config.json of an exported model.
Json exported_config(std::span<const HfFile> files, const HfExport& what) {
  Json config = what.config;
  config.erase("torch_dtype");
  config.erase("quantization_config");
  const auto dtype = main_dtype(files);
  if (dtype) config["dtype"] = Json(tensor::dtype_name(*dtype));
  if (const Json* text = config.find("text_config"); text != nullptr && text->is_object()) {
    Json& own = config["text_config"];
    own.erase("quantization_config");
    own.erase("torch_dtype");
    if (dtype && own.contains("dtype")) own["dtype"] = Json(tensor::dtype_name(*dtype));
  }
  const std::string original = path_join(what.original_folder, "config.json");
  const bool has_float_objects = !what.original_folder.empty() && path_exists(original) &&
                                 read_file(original).find("\"__float__\"") != std::string::npos;
  return has_float_objects ? with_float_objects(config) : config;
}

}  // namespace

std::vector<FileRecord> write_hf_texts(const std::string& folder, std::span<const HfFile> files,
                                       const HfExport& what) {
  create_directories(folder);
  TextWriter writer(folder);
  const Json config = exported_config(files, what);
  writer.write("config.json", config.dump(2) + "\n");

  const std::string original = path_join(what.original_folder, "generation_config.json");
  const bool has_original = !what.original_folder.empty() && path_exists(original);
  std::string generation =
      has_original ? read_file(original) : generation_config(config).dump(2) + "\n";
  if (!what.end_tokens.empty()) {
    generation = with_end_tokens(generation, original, config, what.end_tokens);
  }
  if (what.generates) writer.write("generation_config.json", generation);
  for (const TextFile& file : what.more_files) {
    create_directories(parent_path(path_join(folder, file.path)));
    writer.write(file.path, file.text);
  }
  if (!what.tokenizer_folder.empty()) {
    writer.copy_tokenizer(what.tokenizer_folder, what.chat_template);
  }
  // Written last: a folder with an index has every file that the index names.
  writer.write("model.safetensors.index.json", index_text(files));
  sync_directory(folder);
  return writer.take();
}

namespace {

/// A source that adds to its tensors those of a folder whose names begin with certain prefixes.
class SourceWithKeptTensors final : public TensorSource {
 public:
  SourceWithKeptTensors(const TensorSource& source, const HfExport& what)
      : source_(source), original_(HfFolder::open(what.original_folder)) {
    for (const std::string& name : original_.names()) {
      if (has_prefix(name, what.kept_prefixes)) kept_.insert(name);
    }
  }

  std::vector<TensorInfo> tensors() const override {
    std::vector<TensorInfo> tensors = source_.tensors();
    for (const std::string& name : kept_) {
      const TensorEntry& entry = *original_.find(name)->entry;
      tensors.push_back({name, entry.dtype, entry.shape});
    }
    return tensors;
  }

  void read(std::string_view name, int64_t first, at::Tensor out) const override {
    if (!kept_.contains(name)) return source_.read(name, first, out);
    original_.read_elements(*original_.find(name), first, out);
  }

 private:
  const TensorSource& source_;
  HfFolder original_;
  std::set<std::string, std::less<>> kept_;
};

}  // namespace

std::vector<FileRecord> copy_tokenizer_files(const std::string& from, const std::string& to,
                                             const std::optional<std::string>& chat_template) {
  TextWriter writer(to);
  writer.copy_tokenizer(from, chat_template);
  return writer.take();
}

std::string new_folder(const std::string& path) {
  std::string whole = std::filesystem::weakly_canonical(path).string();
  if (path_exists(path) || path_exists(whole)) {
    throw InputError(cat(path, " is there already: name a folder that is not"));
  }
  return whole;
}

std::vector<FileRecord> save_hf_folder(const std::string& folder, const TensorSource& source,
                                       const HfExport& what) {
  std::optional<SourceWithKeptTensors> joined;
  const bool has_kept = !what.kept_prefixes.empty() && !what.original_folder.empty() &&
                        has_weights(what.original_folder);
  if (has_kept) joined.emplace(source, what);
  const TensorSource& all = joined ? static_cast<const TensorSource&>(*joined) : source;
  const std::vector<HfFile> files = plan_hf_files(all.tensors(), what);
  std::vector<FileRecord> records =
      write_hf_weights(folder, files, all, {.progress = what.progress});
  for (FileRecord& record : write_hf_texts(folder, files, what)) {
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace automodel::checkpoint
