#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "config/node.h"
#include "core/field.h"

namespace automodel::recipes {

// Options of upstream's classes that are not in this version. They are read so that a mistake in
// one is reported beside the missing class.

/// FlashAdamW: AdamW whose weights have 24 bits and whose averages have 8.
struct FlashAdamOptions {
  double lr = 1e-4;
  std::vector<double> betas;
  double eps = 1e-8;
  double weight_decay = 0;
  std::optional<int64_t> master_weight_bits;
  std::optional<bool> quantize;
  std::optional<bool> compress_state_dict;
  std::optional<bool> check_numerics;
  std::optional<bool> decouple_lr;
  std::optional<bool> foreach;
  std::optional<bool> fused;
  std::optional<config::Node> param_group_overrides;

  static constexpr auto fields() {
    using O = FlashAdamOptions;
    return std::tuple{field("lr", &O::lr, "").at_least(0),
                      field("betas", &O::betas, "").at_least(0).at_most(1),
                      field("eps", &O::eps, "").at_least(0),
                      field("weight_decay", &O::weight_decay, "").at_least(0),
                      field("master_weight_bits", &O::master_weight_bits, "").at_least(1),
                      field("quantize", &O::quantize, ""),
                      field("compress_state_dict", &O::compress_state_dict, ""),
                      field("check_numerics", &O::check_numerics, ""),
                      field("decouple_lr", &O::decouple_lr, ""),
                      field("foreach", &O::foreach, ""),
                      field("fused", &O::fused, ""),
                      field("param_group_overrides", &O::param_group_overrides, "")};
  }
};

}  // namespace automodel::recipes
