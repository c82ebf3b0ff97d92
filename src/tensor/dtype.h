#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <string_view>

namespace automodel::tensor {

/// Parses a dtype as recipes and config.json name it: any case, with or without "torch.": bf16,
/// bfloat16, float, float32, float16, half, float64, double, the integer types, bool, float8 names,
/// and also "fp16" and "fp32", which upstream refuses. nullopt for anything else.
std::optional<at::ScalarType> parse_dtype(std::string_view name);

/// The dtype in which sums of numbers of a dtype are computed: float64 for float64, else float32.
constexpr at::ScalarType wide_dtype(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

/// Whether a dtype is one in which models and adapters are stored and computed: no float of 8 bits,
/// which means nothing without its scale.
constexpr bool is_plain_float(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf ||
         dtype == at::kDouble;
}

/// "float32", "bfloat16", ... (torch's names without "torch.").
std::string dtype_name(at::ScalarType dtype);

/// The name in a safetensors header ("F32", "BF16", "I64", ...). Throws InternalError for a dtype
/// that the format lacks.
std::string safetensors_dtype_name(at::ScalarType dtype);

/// The dtype of a safetensors header's name; nullopt when unknown.
std::optional<at::ScalarType> parse_safetensors_dtype(std::string_view name);

}  // namespace automodel::tensor
