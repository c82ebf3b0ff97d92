#pragma once

#include <cstdint>

#include "core/json.h"

namespace automodel::models::decoder {

/// The rope_parameters of transformers' Ministral 3 and Mistral 4 for a config.json without any:
/// YaRN, with queries that grow with their position.
Json mistral_yarn(double theta, double factor, int64_t original_max_positions);

}  // namespace automodel::models::decoder
