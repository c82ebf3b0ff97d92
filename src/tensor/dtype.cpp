#include "tensor/dtype.h"

#include <array>
#include <utility>

#include "core/error.h"

namespace automodel::tensor {

namespace {

struct DtypeNames {
  at::ScalarType dtype;
  std::string_view torch;
  std::string_view safetensors;  // "" when the format has none
};

constexpr std::array<DtypeNames, 15> kNames = {{
    {at::kFloat, "float32", "F32"},
    {at::kBFloat16, "bfloat16", "BF16"},
    {at::kHalf, "float16", "F16"},
    {at::kDouble, "float64", "F64"},
    {at::kLong, "int64", "I64"},
    {at::kInt, "int32", "I32"},
    {at::kShort, "int16", "I16"},
    {at::kChar, "int8", "I8"},
    {at::kByte, "uint8", "U8"},
    {at::kBool, "bool", "BOOL"},
    {at::kFloat8_e4m3fn, "float8_e4m3fn", "F8_E4M3"},
    {at::kFloat8_e5m2, "float8_e5m2", "F8_E5M2"},
    {at::kFloat8_e8m0fnu, "float8_e8m0fnu", "F8_E8M0"},
    {at::kFloat8_e4m3fnuz, "float8_e4m3fnuz", ""},
    {at::kFloat8_e5m2fnuz, "float8_e5m2fnuz", ""},
}};

constexpr std::array<std::pair<std::string_view, at::ScalarType>, 9> kAliases = {{
    {"bf16", at::kBFloat16},
    {"fp16", at::kHalf},
    {"half", at::kHalf},
    {"fp32", at::kFloat},
    {"float", at::kFloat},
    {"double", at::kDouble},
    {"long", at::kLong},
    {"int", at::kInt},
    {"short", at::kShort},
}};

}  // namespace

std::optional<at::ScalarType> parse_dtype(std::string_view name) {
  std::string text = to_lower(name);
  if (text.starts_with("torch.")) text = text.substr(6);
  for (const auto& names : kNames) {
    if (names.torch == text) return names.dtype;
  }
  for (const auto& [alias, dtype] : kAliases) {
    if (alias == text) return dtype;
  }
  return std::nullopt;
}

std::string dtype_name(at::ScalarType dtype) {
  for (const auto& names : kNames) {
    if (names.dtype == dtype) return std::string(names.torch);
  }
  return c10::toString(dtype);
}

std::string safetensors_dtype_name(at::ScalarType dtype) {
  for (const auto& names : kNames) {
    if (names.dtype == dtype && !names.safetensors.empty()) return std::string(names.safetensors);
  }
  AM_CHECK(false, "safetensors has no dtype ", c10::toString(dtype));
}

std::optional<at::ScalarType> parse_safetensors_dtype(std::string_view name) {
  for (const auto& names : kNames) {
    if (!names.safetensors.empty() && names.safetensors == name) return names.dtype;
  }
  return std::nullopt;
}

}  // namespace automodel::tensor
