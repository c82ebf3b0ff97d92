#pragma once

#include <string>

namespace automodel {

/// Seconds of a monotonic clock.
double monotonic_seconds();

/// Seconds since this process was started by the kernel (LibTorch's loading included).
double seconds_since_process_start();

/// UTC, ISO 8601 with milliseconds: "2026-08-01T12:34:56.789Z".
std::string utc_timestamp();

}  // namespace automodel
