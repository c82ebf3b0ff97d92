#include "checkpoint/quantized_tensor.h"

#include <algorithm>
#include <array>
#include <span>

#include "core/divide.h"
#include "core/error.h"
#include "tensor/dtype.h"

namespace automodel::checkpoint {

namespace {

using Part = QuantizedTensor::Part;
using Parts = std::map<std::string, Part>;
using Method = Quantization::Method;

constexpr const char* kRead =
    "weights are read in fp8, mxfp4 and compressed-tensors (format float-quantized)";

/// Scales of activations and of the cache, which are unused: products are in the model's dtype
/// here.
constexpr std::array<std::string_view, 9> kActivationScales = {
    ".input_scale", "_input_scale", ".activation_scale", "_activation_scale", ".output_scale",
    ".kv_scale",    ".q_scale",     ".k_scale",          ".v_scale"};

bool ends_with_any(std::string_view name, std::span<const std::string_view> suffixes) {
  return std::ranges::any_of(suffixes, [&](std::string_view each) { return name.ends_with(each); });
}

bool is_float8(at::ScalarType dtype) {
  return dtype == at::kFloat8_e4m3fn || dtype == at::kFloat8_e5m2;
}

[[noreturn]] void refuse(const std::string& what) {
  throw UnsupportedError(
      cat("config.json: quantization_config: ", what, " is not in this version; ", kRead));
}

/// Sets the blocks' rows and columns from a list of the two.
void read_blocks(const char* key, const Json& block, Quantization& quantization) {
  const bool is_pair = block.is_array() && block.size() == 2 && block.as_array()[0].is_int() &&
                       block.as_array()[1].is_int();
  if (!is_pair || block.as_array()[0].as_int() <= 0 || block.as_array()[1].as_int() <= 0) {
    throw InputError(
        cat("config.json: quantization_config: ", key, " is ", block.dump(), ", not two sizes"));
  }
  quantization.block_rows = block.as_array()[0].as_int();
  quantization.block_cols = block.as_array()[1].as_int();
}

/// Reads the settings of weights in one of compressed-tensors' groups.
void read_group(const std::string& name, const Json& group, Quantization& quantization) {
  const Json* weights = group.find("weights");
  if (weights == nullptr || !weights->is_object()) refuse(cat(name, " without weights"));
  const int64_t num_bits = weights->get("num_bits", 8);
  const std::string type = weights->get("type", "int");
  if (num_bits != 8 || type != "float") refuse(cat(name, " of ", num_bits, "-bit ", type));
  if (!weights->get("symmetric", true)) refuse(cat(name, " with zero points (symmetric: false)"));
  const std::string strategy = weights->get("strategy", "tensor");
  if (strategy == "tensor" || strategy == "channel") return;
  const Json* block = weights->find("block_structure");
  if (strategy != "block" || block == nullptr) refuse(cat("strategy '", strategy, "' of ", name));
  read_blocks("block_structure", *block, quantization);
}

Quantization read_compressed(const Json& settings) {
  Quantization quantization{.method = Method::kCompressed};
  const std::string format = settings.get("format", "dense");
  if (format != "float-quantized") refuse(cat("format '", format, "' of compressed-tensors"));
  const Json* transforms = settings.find("transform_config");
  if (transforms != nullptr && transforms->size() > 0) refuse("transform_config");
  const Json* groups = settings.find("config_groups");
  if (groups == nullptr || !groups->is_object()) {
    throw InputError("config.json: quantization_config: no object config_groups");
  }
  for (const auto& [name, group] : groups->as_object()) read_group(name, group, quantization);
  return quantization;
}

Quantization read_fp8(const Json& settings) {
  Quantization quantization{.method = Method::kFp8};
  const Json* block = settings.find("weight_block_size");
  if (block == nullptr || block->is_null()) return quantization;
  read_blocks("weight_block_size", *block, quantization);
  return quantization;
}

/// The shape of the scales of a weight with blocks.
std::vector<int64_t> grid_of(const std::vector<int64_t>& shape, int64_t rows, int64_t cols) {
  std::vector<int64_t> grid = shape;
  grid[grid.size() - 2] = ceil_div(shape[shape.size() - 2], rows);
  grid.back() = ceil_div(shape.back(), cols);
  return grid;
}

bool is_one_block(const std::vector<int64_t>& shape, const Quantization& quantization) {
  if (shape.size() < 2) return true;
  const auto grid = grid_of(shape, quantization.block_rows, quantization.block_cols);
  return std::ranges::all_of(grid, [](int64_t size) { return size == 1; });
}

/// An entry for a tensor that no file holds in this form; it has the size that it would have.
TensorEntry entry_of(const std::string& name, at::ScalarType dtype, std::vector<int64_t> shape) {
  uint64_t num_bytes = c10::elementSize(dtype);
  for (const int64_t size : shape) num_bytes *= static_cast<uint64_t>(size);
  return {name, dtype, std::move(shape), 0, num_bytes};
}

std::string in_file(const Part& part, const std::vector<std::string>& paths) {
  return cat(paths[part.file], ": tensor '", part.entry->name, "'");
}

/// Derives the blocks of a float8 weight from the shape of its scales.
void set_blocks(QuantizedTensor& tensor, const Quantization& quantization,
                const std::vector<std::string>& paths) {
  const std::vector<int64_t>& shape = tensor.values.shape;
  const std::vector<int64_t>& given = tensor.scales.entry->shape;
  const int64_t cols = shape.empty() ? 1 : shape.back();
  const bool has_blocks = quantization.block_rows > 0;
  std::vector<int64_t> wanted;
  if (tensor.scales.entry->numel() == 1 && (!has_blocks || is_one_block(shape, quantization))) {
    tensor.block_rows = tensor.values.numel() / std::max<int64_t>(cols, 1);
    tensor.block_cols = cols;
    return;
  }
  if (has_blocks && shape.size() >= 2) {
    wanted = grid_of(shape, quantization.block_rows, quantization.block_cols);
    tensor.block_rows = quantization.block_rows;
    tensor.block_cols = quantization.block_cols;
    if (given == wanted) return;
  } else if (!has_blocks && shape.size() == 3 && tensor.scales.entry->numel() == shape[0]) {
    tensor.block_rows = shape[1];  // one scale per expert
    tensor.block_cols = cols;
    return;
  } else if (!has_blocks && shape.size() == 2) {
    wanted = {shape[0], 1};
    tensor.block_rows = 1;
    tensor.block_cols = cols;
    if (given == wanted || given == std::vector<int64_t>{shape[0]}) return;
  }
  const std::string right = wanted.empty()
                                ? "one number"
                                : cat("[", join(wanted), "]", has_blocks ? "" : " or one number");
  throw InputError(cat(in_file(tensor.scales, paths), " is [", join(given), "]; the scales of ",
                       tensor.values.name, " [", join(shape), "] ",
                       has_blocks ? cat("in blocks of [", quantization.block_rows, ", ",
                                        quantization.block_cols, "] ")
                                  : "",
                       "would be ", right));
}

bool is_scale_dtype(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf ||
         dtype == at::kFloat8_e8m0fnu || dtype == at::kByte;
}

/// Finds the scales of a float8 weight under the names that folders use.
Parts::iterator find_scales(Parts& parts, const std::string& name, Method method) {
  const char* usual = method == Method::kCompressed ? "_scale" : "_scale_inv";
  const char* other = method == Method::kCompressed ? "_scale_inv" : "_scale";
  for (const char* suffix : {usual, other}) {
    const auto found = parts.find(name + suffix);
    if (found != parts.end()) return found;
  }
  return parts.end();
}

std::map<std::string, QuantizedTensor> find_float8(const Quantization& quantization, Parts& parts,
                                                   at::ScalarType dtype,
                                                   const std::vector<std::string>& paths) {
  std::map<std::string, QuantizedTensor> found;
  std::vector<std::string> used;
  for (const auto& [name, part] : parts) {
    if (!is_float8(part.entry->dtype)) continue;
    const auto scales = find_scales(parts, name, quantization.method);
    if (scales == parts.end()) {
      const bool is_compressed = quantization.method == Method::kCompressed;
      throw InputError(cat(in_file(part, paths), " is ",
                           tensor::safetensors_dtype_name(part.entry->dtype),
                           ", and the folder has no ", name,
                           is_compressed ? "_scale" : "_scale_inv", " to dequantize it with"));
    }
    if (!is_scale_dtype(scales->second.entry->dtype)) {
      throw InputError(cat(in_file(scales->second, paths), " is ",
                           tensor::safetensors_dtype_name(scales->second.entry->dtype),
                           ", no dtype of scales: F32, BF16, F16, F8_E8M0 or U8"));
    }
    QuantizedTensor tensor{.values = entry_of(name, dtype, part.entry->shape),
                           .weight = part,
                           .scales = scales->second,
                           .method = quantization.method};
    set_blocks(tensor, quantization, paths);
    used.insert(used.end(), {name, scales->first});
    found.emplace(name, std::move(tensor));
  }
  for (const std::string& name : used) parts.erase(name);
  return found;
}

constexpr std::string_view kBlocks = "_blocks";

QuantizedTensor mxfp4_tensor(const std::string& name, const Part& blocks, const Part& scales,
                             at::ScalarType dtype, const std::vector<std::string>& paths) {
  const std::vector<int64_t>& packed = blocks.entry->shape;
  const bool is_packed =
      blocks.entry->dtype == at::kByte && packed.size() == 4 && packed[3] == kMxfp4Group / 2;
  if (!is_packed) {
    throw InputError(cat(in_file(blocks, paths), " is ",
                         tensor::safetensors_dtype_name(blocks.entry->dtype), " [", join(packed),
                         "]; blocks of mxfp4 are U8 [experts, out, in / 32, 16]"));
  }
  const std::vector<int64_t> wanted(packed.begin(), packed.begin() + 3);
  if (scales.entry->shape != wanted ||
      (scales.entry->dtype != at::kByte && scales.entry->dtype != at::kFloat8_e8m0fnu)) {
    throw InputError(cat(in_file(scales, paths), " is ",
                         tensor::safetensors_dtype_name(scales.entry->dtype), " [",
                         join(scales.entry->shape), "]; the scales of ", blocks.entry->name,
                         " would be U8 [", join(wanted), "]"));
  }
  return {.values = entry_of(name, dtype, {packed[0], packed[2] * kMxfp4Group, packed[1]}),
          .weight = blocks,
          .scales = scales,
          .method = Method::kMxfp4};
}

std::map<std::string, QuantizedTensor> find_mxfp4(Parts& parts, at::ScalarType dtype,
                                                  const std::vector<std::string>& paths) {
  std::map<std::string, QuantizedTensor> found;
  std::vector<std::string> used;
  for (const auto& [stored, blocks] : parts) {
    if (!stored.ends_with(kBlocks)) continue;
    const std::string name = stored.substr(0, stored.size() - kBlocks.size());
    const auto scales = parts.find(name + "_scales");
    if (scales == parts.end()) {
      throw InputError(cat(in_file(blocks, paths), " is mxfp4, and the folder has no ", name,
                           "_scales to dequantize it with"));
    }
    found.emplace(name, mxfp4_tensor(name, blocks, scales->second, dtype, paths));
    used.insert(used.end(), {stored, scales->first});
  }
  for (const std::string& name : used) parts.erase(name);
  return found;
}

}  // namespace

const char* method_name(Quantization::Method method) {
  switch (method) {
    case Method::kFp8:
      return "fp8";
    case Method::kMxfp4:
      return "mxfp4";
    case Method::kCompressed:
      return "compressed-tensors";
  }
  AM_CHECK(false);
}

namespace {

Quantization read_method(const Json& settings) {
  const Json* method = settings.find("quant_method");
  if (method == nullptr || !method->is_string()) {
    throw InputError("config.json: quantization_config: no string quant_method");
  }
  const std::string& name = method->as_string();
  if (name == "fp8") return read_fp8(settings);
  if (name == "mxfp4") return Quantization{.method = Method::kMxfp4};
  if (name == "compressed-tensors") return read_compressed(settings);
  refuse(cat("quant_method '", name, "'"));
}

}  // namespace

std::optional<Quantization> read_quantization(const Json& config) {
  const auto is_there = [](const Json* value) { return value != nullptr && !value->is_null(); };
  const Json* settings = config.find("quantization_config");
  const Json* text = config.find("text_config");
  if (!is_there(settings) && text != nullptr) settings = text->find("quantization_config");
  if (!is_there(settings)) return std::nullopt;
  try {
    return read_method(*settings);
  } catch (const InputError& error) {
    const std::string_view what = error.what();
    if (what.starts_with("config.json")) throw;
    throw InputError(cat("config.json: quantization_config: ", what));
  }
}

bool is_scale_name(std::string_view name) {
  constexpr std::array<std::string_view, 3> kWeightScales = {"_scale_inv", "_scale", "_scales"};
  return ends_with_any(name, kWeightScales) || ends_with_any(name, kActivationScales);
}

std::map<std::string, QuantizedTensor> find_quantized(const Quantization& quantization,
                                                      Parts& parts, at::ScalarType dtype,
                                                      const std::vector<std::string>& paths) {
  auto found = quantization.method == Method::kMxfp4
                   ? find_mxfp4(parts, dtype, paths)
                   : find_float8(quantization, parts, dtype, paths);
  std::erase_if(parts,
                [](const auto& part) { return ends_with_any(part.first, kActivationScales); });
  return found;
}

}  // namespace automodel::checkpoint
