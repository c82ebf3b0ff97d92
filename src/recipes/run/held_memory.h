#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "core/json.h"
#include "recipes/run/session_model.h"

namespace automodel::recipes {

/// What an event `memory` says of a rank: {"peak_bytes", "parts": [{"name", "bytes"}]}. Parameters,
/// gradients and optimizer state are those that its engine and optimizer hold on `device` between
/// steps, under the names of the plan's parts (RecipePlan::parts); the rest up to the peak is one
/// part. Call it between steps.
Json held_memory(const SessionModel& model, at::Device device, uint64_t peak_bytes);

}  // namespace automodel::recipes
