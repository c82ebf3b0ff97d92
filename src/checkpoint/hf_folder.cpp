#include "checkpoint/hf_folder.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/file.h"
#include "tensor/dtype.h"

namespace automodel::checkpoint {

namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

/// Checks that a file name from an index stays inside the folder.
void check_file_name(const std::string& name, const std::string& index_path) {
  if (name.empty() || name.find('/') != std::string::npos || name == "..") {
    throw InputError(cat(index_path, ": weight_map names a file outside the folder: '", name, "'"));
  }
}

/// Throws the reason why a folder has no weights that can be read.
[[noreturn]] void fail_without_weights(const std::string& path) {
  for (const std::string& name : list_directory(path)) {
    if (!name.ends_with(".bin") && !name.ends_with(".bin.index.json") && !name.ends_with(".pt") &&
        !name.ends_with(".pth")) {
      continue;
    }
    throw InputError(cat(path, ": has weights only as ", name,
                         ", a Python pickle, which is never loaded because it can run code; "
                         "save the model as safetensors (save_pretrained does)"));
  }
  throw InputError(cat(path, ": neither ", kSingleFile, " nor ", kIndexFile, " is there"));
}

}  // namespace

bool has_prefix(std::string_view name, const std::vector<std::string>& prefixes) {
  return std::ranges::any_of(prefixes,
                             [&](const std::string& prefix) { return name.starts_with(prefix); });
}

bool has_weights(const std::string& folder) {
  return path_exists(path_join(folder, kSingleFile)) || path_exists(path_join(folder, kIndexFile));
}

std::string what_it_is_instead(const std::string& folder) {
  if (path_exists(path_join(folder, "adapter_config.json"))) {
    return ", but an adapter; merge-lora makes a model of it and its base";
  }
  for (const char* place : {"model/consolidated", "consolidated"}) {
    const std::string exported = path_join(folder, place);
    if (path_exists(path_join(exported, "config.json"))) {
      return cat(", but a checkpoint, whose model is ", exported);
    }
  }
  return "";
}

HfFolder HfFolder::open(const std::string& path) {
  if (!is_directory(path)) throw InputError(cat(path, ": no such folder"));
  HfFolder folder;
  folder.path_ = path;
  const std::string config_path = path_join(path, "config.json");
  if (!path_exists(config_path)) {
    throw InputError(cat(path, ": no config.json; this is not a Hugging Face model folder",
                         what_it_is_instead(path)));
  }
  folder.config_ = Json::parse_file(config_path);
  if (!folder.config_.is_object()) {
    throw InputError(cat(config_path, ": ", folder.config_.kind(), ", not an object"));
  }
  folder.open_files();
  folder.quantization_ = read_quantization(folder.config_);
  if (folder.quantization_) folder.find_quantized_tensors();
  folder.find_stacked_experts();
  std::sort(folder.names_.begin(), folder.names_.end());
  return folder;
}

void HfFolder::open_files() {
  const std::string single = path_join(path_, kSingleFile);
  const std::string index_path = path_join(path_, kIndexFile);
  if (path_exists(single)) {
    file_names_ = {kSingleFile};
    files_.emplace_back(single);
    for (const TensorEntry& entry : files_[0].tensors()) {
      places_[entry.name] = {0, &entry};
      names_.push_back(entry.name);
    }
  } else if (path_exists(index_path)) {
    index_from_map(Json::parse_file(index_path), index_path);
  } else {
    fail_without_weights(path_);
  }
}

void HfFolder::index_from_map(const Json& index, const std::string& index_path) {
  const Json* map = index.find("weight_map");
  if (map == nullptr || !map->is_object()) {
    throw InputError(cat(index_path, ": no object weight_map"));
  }
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->as_object()) {
    if (!file.is_string()) {
      throw InputError(cat(index_path, ": weight_map: '", tensor, "' is ", file.kind()));
    }
    check_file_name(file.as_string(), index_path);
    names.insert(file.as_string());
  }
  std::unordered_map<std::string, size_t> numbers;
  for (const std::string& name : names) {
    const std::string path = path_join(path_, name);
    if (!path_exists(path)) {
      throw InputError(cat(index_path, ": names ", name, ", which is not there"));
    }
    numbers[name] = files_.size();
    file_names_.push_back(name);
    files_.emplace_back(path);
  }
  for (const auto& [tensor, file] : map->as_object()) {
    const size_t number = numbers.at(file.as_string());
    const TensorEntry* entry = files_[number].find(tensor);
    if (entry == nullptr) {
      throw InputError(cat(index_path, ": tensor '", tensor, "' should be in ", file.as_string(),
                           ", but is not"));
    }
    if (places_.insert_or_assign(tensor, Place{number, entry}).second) names_.push_back(tensor);
  }
}

void HfFolder::find_quantized_tensors() {
  std::map<std::string, QuantizedTensor::Part> parts;
  for (const auto& [name, place] : places_)
    parts.emplace(name, QuantizedTensor::Part{place.file, place.entry});
  std::vector<std::string> paths;
  for (const SafetensorsFile& file : files_) paths.push_back(file.path());
  quantized_ = find_quantized(*quantization_, parts, storage_dtype(), paths);
  places_.clear();
  names_.clear();
  for (const auto& [name, part] : parts) {
    places_[name] = {part.file, part.entry};
    names_.push_back(name);
  }
  for (const auto& [name, tensor] : quantized_) {
    if (!places_.emplace(name, Place{tensor.weight.file, &tensor.values, &tensor}).second) {
      throw InputError(cat(files_[tensor.weight.file].path(), ": tensor '", name,
                           "' is in the folder both quantized and not"));
    }
    names_.push_back(name);
  }
}

void HfFolder::find_stacked_experts() {
  constexpr std::string_view kUpper = ".experts.gate_up_proj";
  for (const auto& [name, upper] : places_) {
    if (!name.ends_with(kUpper)) continue;
    const std::string experts = name.substr(0, name.size() - kUpper.size()) + ".experts.";
    const auto lower = places_.find(experts + "down_proj");
    if (lower == places_.end() || upper.quantized || lower->second.quantized) continue;
    const std::vector<int64_t>& shape = upper.entry->shape;  // [E, 2 I, D]
    if (shape.size() != 3 || upper.entry->num_bytes() == 0 || shape[1] % 2 != 0 ||
        lower->second.entry->shape != std::vector<int64_t>{shape[0], shape[2], shape[1] / 2}) {
      continue;
    }
    const auto add = [&](int64_t expert, const char* matrix, const Place& stack, int64_t first,
                         std::vector<int64_t> size) {
      const TensorEntry& whole = *stack.entry;
      const auto bytes = static_cast<uint64_t>(c10::elementSize(whole.dtype));
      const auto begin = whole.begin + static_cast<uint64_t>(first) * bytes;
      const auto numel = static_cast<uint64_t>(size[0] * size[1]);
      expert_entries_.push_back(
          {whole.name, whole.dtype, std::move(size), begin, begin + numel * bytes});
      experts_[cat(experts, expert, ".", matrix, ".weight")] = {stack.file,
                                                                &expert_entries_.back()};
    };
    const int64_t inner = shape[1] / 2;
    const int64_t dim = shape[2];
    for (int64_t e = 0; e < shape[0]; ++e) {
      add(e, "gate_proj", upper, 2 * e * inner * dim, {inner, dim});
      add(e, "up_proj", upper, (2 * e + 1) * inner * dim, {inner, dim});
      add(e, "down_proj", lower->second, e * inner * dim, {dim, inner});
    }
  }
}

uint64_t HfFolder::Place::num_stored_bytes(int64_t num_elements) const {
  const auto count = static_cast<uint64_t>(num_elements);
  if (quantized == nullptr) return count * c10::elementSize(entry->dtype);
  const bool is_packed = quantized->method == Quantization::Method::kMxfp4;
  return is_packed ? count / 2 : count;
}

void HfFolder::read_elements(const Place& place, int64_t first, at::Tensor out) const {
  const int64_t numel = place.entry->numel();
  AM_CHECK(first >= 0 && first + out.numel() <= numel && out.is_contiguous(), place.entry->name);
  read_shard(place, {{numel}, {0}, {numel}, first, first + out.numel()}, out.view({-1}));
}

void HfFolder::read_shard(const Place& place, const tensor::ShardSpec& spec, at::Tensor out) const {
  if (place.quantized == nullptr) {
    files_[place.file].read_shard(*place.entry, spec, out);
    return;
  }
  const QuantizedTensor& tensor = *place.quantized;
  read_quantized(tensor, files_[tensor.weight.file], files_[tensor.scales.file], spec, out);
}

std::optional<HfFolder::Place> HfFolder::find(std::string_view name) const {
  const std::string key(name);
  if (const auto found = places_.find(key); found != places_.end()) return found->second;
  if (const auto found = experts_.find(key); found != experts_.end()) return found->second;
  return std::nullopt;
}

std::optional<at::ScalarType> stated_dtype(const Json& hf_config) {
  for (const Json* config : {&hf_config, hf_config.find("text_config")}) {
    if (config == nullptr) continue;
    for (const char* key : {"dtype", "torch_dtype"}) {
      const Json* name = config->find(key);
      if (name == nullptr || !name->is_string()) continue;
      const auto dtype = tensor::parse_dtype(name->as_string());
      if (dtype && c10::isFloatingType(*dtype) && c10::elementSize(*dtype) > 1) return *dtype;
    }
  }
  return std::nullopt;
}

at::ScalarType HfFolder::storage_dtype() const {
  if (const auto dtype = stated_dtype(config_)) return *dtype;
  for (const SafetensorsFile& file : files_) {
    for (const TensorEntry& entry : file.tensors()) {
      // One-byte elements: a quantized weight, or its scales.
      const bool is_quantized = c10::elementSize(entry.dtype) == 1 ||
                                (quantization_.has_value() && is_scale_name(entry.name));
      if (c10::isFloatingType(entry.dtype) && !is_quantized) return entry.dtype;
    }
  }
  if (quantization_) return at::kBFloat16;
  throw InputError(cat(path_, ": no floating point tensor in its weights"));
}

}  // namespace automodel::checkpoint
