#include "checkpoint/safetensors_header.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <unordered_set>

#include "core/error.h"
#include "core/json.h"
#include "tensor/dtype.h"

namespace automodel::checkpoint {

static_assert(std::endian::native == std::endian::little, "safetensors files are little endian");

namespace {

constexpr uint64_t kLengthBytes = 8;

[[noreturn]] void fail(std::string_view file, const std::string& what) {
  throw InputError(cat(file, ": ", what));
}

/// The texts between the quotes of the outermost object's keys, as written. The text is valid JSON.
std::vector<std::string_view> outer_keys(std::string_view text) {
  std::vector<std::string_view> keys;
  std::string_view last_string;
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      const size_t begin = ++i;
      while (i < text.size() && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
      last_string = text.substr(begin, i - begin);
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (c == ':' && depth == 1) {
      keys.push_back(last_string);
    }
  }
  return keys;
}

/// core's Json merges equal keys of small objects, so duplicates are looked for in the text.
void check_unique(std::string_view text, const Json::Object& members, std::string_view file) {
  const std::vector<std::string_view> keys = outer_keys(text);
  std::unordered_set<std::string_view> seen;
  for (const std::string_view key : keys) {
    if (!seen.insert(key).second) fail(file, cat("tensor '", key, "' occurs twice in the header"));
  }
  std::unordered_set<std::string_view> names;
  for (const auto& [name, value] : members) names.insert(name);
  if (names.size() != keys.size()) fail(file, "a tensor occurs twice in the header");
}

/// The product of the dims; nullopt when it or its number of bytes does not fit in 63 bits. The
/// product without dims of 0 must fit too, since strides are made from it.
std::optional<int64_t> checked_numel(const std::vector<int64_t>& shape, int64_t item_bytes) {
  int64_t numel = 1;
  for (const int64_t dim : shape) {
    if (dim == 0) continue;
    if (numel > std::numeric_limits<int64_t>::max() / dim) return std::nullopt;
    numel *= dim;
  }
  if (numel > std::numeric_limits<int64_t>::max() / item_bytes) return std::nullopt;
  return std::ranges::find(shape, 0) == shape.end() ? numel : 0;
}

/// Reads one member of the header; its offsets are relative to the header's end.
class EntryReader final {
 public:
  EntryReader(std::string_view file, const std::string& name) : file_(file), name_(name) {}

  TensorEntry read(const Json& json) const {
    if (!json.is_object()) fail(cat("is ", json.kind(), ", not an object"));
    TensorEntry entry;
    entry.name = name_;
    const Json* dtype = json.find("dtype");
    if (dtype == nullptr || !dtype->is_string()) fail("has no dtype");
    const auto known = tensor::parse_safetensors_dtype(dtype->as_string());
    if (!known) fail(cat("unknown dtype '", dtype->as_string(), "'"));
    entry.dtype = *known;
    entry.shape = read_integers(json, "shape");
    const std::vector<int64_t> offsets = read_integers(json, "data_offsets");
    if (offsets.size() != 2) fail(cat("data_offsets has ", offsets.size(), " numbers, not 2"));
    if (offsets[0] > offsets[1]) {
      fail(cat("data_offsets ", offsets[0], ", ", offsets[1], " are reversed"));
    }
    entry.begin = static_cast<uint64_t>(offsets[0]);
    entry.end = static_cast<uint64_t>(offsets[1]);
    check_bytes(entry);
    return entry;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    checkpoint::fail(file_, cat("tensor '", name_, "': ", what));
  }

  std::vector<int64_t> read_integers(const Json& json, const char* key) const {
    const Json* list = json.find(key);
    if (list == nullptr || !list->is_array()) fail(cat("has no list ", key));
    std::vector<int64_t> numbers;
    for (const Json& number : list->as_array()) {
      if (!number.is_int()) fail(cat(key, " holds ", number.kind(), ", not an integer"));
      if (number.as_int() < 0) fail(cat(key, " holds a negative number, ", number.as_int()));
      numbers.push_back(number.as_int());
    }
    return numbers;
  }

  void check_bytes(const TensorEntry& entry) const {
    const auto item_bytes = static_cast<int64_t>(c10::elementSize(entry.dtype));
    const std::string shape = cat("shape [", join(entry.shape), "]");
    const std::optional<int64_t> numel = checked_numel(entry.shape, item_bytes);
    if (!numel) fail(cat(shape, " is too large"));
    const auto expected = static_cast<uint64_t>(*numel * item_bytes);
    if (entry.num_bytes() != expected) {
      fail(cat("holds ", entry.num_bytes(), " bytes, but ", shape, " of ",
               tensor::safetensors_dtype_name(entry.dtype), " takes ", expected));
    }
  }

  std::string_view file_;
  const std::string& name_;
};

Metadata read_metadata(const Json& json, std::string_view file) {
  if (!json.is_object()) fail(file, cat("__metadata__ is ", json.kind(), ", not an object"));
  Metadata metadata;
  for (const auto& [key, value] : json.as_object()) {
    if (!value.is_string()) {
      fail(file, cat("__metadata__: '", key, "' is ", value.kind(), ", not a string"));
    }
    metadata.emplace_back(key, value.as_string());
  }
  return metadata;
}

/// Checks that the tensors, in the order of their bytes, follow each other from 0 to `data_bytes`.
void check_layout(std::vector<TensorEntry>& tensors, uint64_t data_bytes, std::string_view file) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  uint64_t position = 0;
  const TensorEntry* before = nullptr;
  for (const TensorEntry& entry : tensors) {
    if (entry.begin < position) {
      fail(file, cat("tensor '", entry.name, "' overlaps '", before->name, "'"));
    }
    if (entry.begin > position) {
      fail(file, cat("tensor '", entry.name, "': ", entry.begin - position,
                     " bytes before it belong to no tensor"));
    }
    if (entry.end > data_bytes) {
      fail(file, cat("tensor '", entry.name, "' ends at byte ", entry.end,
                     " of the data, but only ", data_bytes, " are there; the file is truncated"));
    }
    position = entry.end;
    before = &entry;
  }
  if (position != data_bytes) {
    fail(file, cat(data_bytes - position, " bytes after the last tensor belong to no tensor"));
  }
}

}  // namespace

int64_t TensorEntry::numel() const {
  return static_cast<int64_t>(num_bytes() / c10::elementSize(dtype));
}

uint64_t safetensors_header_length(std::span<const std::byte> first_bytes, uint64_t file_size,
                                   std::string_view name) {
  if (file_size < kLengthBytes || first_bytes.size() < kLengthBytes) {
    fail(name, cat("not a safetensors file: ", file_size, " bytes are too few"));
  }
  uint64_t length = 0;
  std::memcpy(&length, first_bytes.data(), kLengthBytes);
  if (length > file_size - kLengthBytes) {
    fail(name, cat("not a safetensors file, or a truncated one: a header of ", length,
                   " bytes does not fit a file of ", file_size));
  }
  if (length > kMaxHeaderBytes) {
    fail(name, cat("a header of ", length, " bytes is longer than the format allows (",
                   kMaxHeaderBytes, ")"));
  }
  return kLengthBytes + length;
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> bytes, uint64_t file_size,
                                           std::string_view name) {
  SafetensorsHeader header;
  header.num_header_bytes = safetensors_header_length(bytes, file_size, name);
  AM_CHECK(bytes.size() >= header.num_header_bytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes,
                              header.num_header_bytes - kLengthBytes);
  const Json json = Json::parse(text, cat(name, ": header"));
  if (!json.is_object()) fail(name, cat("the header is ", json.kind(), ", not an object"));
  check_unique(text, json.as_object(), name);
  for (const auto& [key, value] : json.as_object()) {
    if (key == "__metadata__") {
      header.metadata = read_metadata(value, name);
    } else {
      header.tensors.push_back(EntryReader(name, key).read(value));
    }
  }
  check_layout(header.tensors, file_size - header.num_header_bytes, name);
  for (TensorEntry& entry : header.tensors) {
    entry.begin += header.num_header_bytes;
    entry.end += header.num_header_bytes;
  }
  return header;
}

std::string format_safetensors_header(std::span<const TensorEntry> tensors,
                                      const Metadata& metadata) {
  Json json = Json::object();
  if (!metadata.empty()) {
    Json texts = Json::object();
    for (const auto& [key, value] : metadata) texts[key] = Json(value);
    json.as_object().emplace_back("__metadata__", std::move(texts));
  }
  int64_t offset = 0;
  for (const TensorEntry& tensor : tensors) {
    int64_t bytes = static_cast<int64_t>(c10::elementSize(tensor.dtype));
    Json::Array shape;
    for (const int64_t dim : tensor.shape) {
      shape.emplace_back(dim);
      bytes *= dim;
    }
    Json entry = Json::object();
    entry["dtype"] = Json(tensor::safetensors_dtype_name(tensor.dtype));
    entry["shape"] = Json(std::move(shape));
    entry["data_offsets"] = Json(Json::Array{Json(offset), Json(offset + bytes)});
    json.as_object().emplace_back(tensor.name, std::move(entry));
    offset += bytes;
  }
  std::string text = json.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  std::string out(kLengthBytes, '\0');
  std::memcpy(out.data(), &length, kLengthBytes);
  return out + text;
}

}  // namespace automodel::checkpoint
