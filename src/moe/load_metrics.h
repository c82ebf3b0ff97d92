#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "moe/load_balance.h"

namespace automodel::moe {

/// What is reported about the experts' load; upstream's `moe_metrics`.
struct LoadMetricsOptions {
  bool is_detailed = false;   ///< also for every layer
  int64_t top_k_experts = 0;  ///< the most and the least used experts of each layer; 0: none
};

/// Names and values, upstream's: coefficients of variation (unbiased deviation / mean) of the
/// layers' loads, the mean aux loss, quantiles of the utilization (load / even load) over all
/// layers and experts, the share of dead experts, and diversity (exp(entropy) / experts). A layer
/// without any token counts as zeros. Empty without layers.
std::vector<std::pair<std::string, double>> load_metrics(const std::vector<LayerLoad>& loads,
                                                         const LoadMetricsOptions& options);

}  // namespace automodel::moe
