#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "config/diagnostic.h"
#include "config/node.h"
#include "core/field.h"

namespace automodel::recipes {

/// What linear layers are trained for: torchao's quantizers of the same names.
enum class QuantizerType {
  kInt8DynactInt4Weight,  ///< inputs in 8 bits by token, weights in 4 bits about zero
  kInt4WeightOnly,        ///< weights in 4 bits between the least and the greatest of a group
};

/// `qat.qat_config`.
struct QatConfig {
  QuantizerType quantizer_type = QuantizerType::kInt8DynactInt4Weight;
  int64_t groupsize = 256;
  bool padding_allowed = false;
  int64_t inner_k_tiles = 8;
  std::string precision = "bfloat16";
  std::string scales_precision = "bfloat16";

  static constexpr auto fields() {
    using S = QatConfig;
    return std::tuple{
        field("quantizer_type", &S::quantizer_type,
              "what is rounded: int8_dynact_int4weight (inputs by token, weights by group) or "
              "int4_weight_only"),
        field("groupsize", &S::groupsize,
              "elements of a weight's row that share a scale; a layer whose rows are no multiple "
              "stays as it is")
            .at_least(2),
        field("padding_allowed", &S::padding_allowed,
              "a layer whose rows are no multiple of groupsize is an error; of "
              "int8_dynact_int4weight"),
        field("inner_k_tiles", &S::inner_k_tiles,
              "2, 4 or 8; rows must be a multiple of sixteen times it; of int4_weight_only"),
        field("precision", &S::precision, "dtype of new weights")
            .without_effect("weights keep the model's dtype"),
        field("scales_precision", &S::scales_precision, "dtype of the weights' scales")};
  }
};

/// `qat`: training with weights and inputs rounded as after quantization.
struct QatSection {
  bool enabled = false;
  int64_t fake_quant_after_n_steps = 0;
  std::optional<config::Node> qat_config;
  QatConfig config;  ///< what qat_config says

  static constexpr auto fields() {
    using S = QatSection;
    return std::tuple{
        field("enabled", &S::enabled, "round weights and inputs in training"),
        field("fake_quant_after_n_steps", &S::fake_quant_after_n_steps,
              "steps at the beginning that round nothing")
            .at_least(0),
        field("qat_config", &S::qat_config, "how they are rounded; absent: its defaults")};
  }
};

/// Reads the section `qat` of a recipe; absent where it is off.
std::optional<QatSection> read_qat(const config::Node& root, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes

template <>
struct automodel::EnumNames<automodel::recipes::QuantizerType> {
  using Q = recipes::QuantizerType;
  static constexpr std::array<std::pair<std::string_view, Q>, 2> values = {
      {{"int8_dynact_int4weight", Q::kInt8DynactInt4Weight},
       {"int4_weight_only", Q::kInt4WeightOnly}}};
};
