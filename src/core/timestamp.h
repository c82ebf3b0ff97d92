#pragma once

#include <string_view>

namespace automodel {

/// Now, in seconds since 1970.
double unix_seconds();

/// Seconds since 1970 of "2026-08-01T12:34:56.789Z", as utc_timestamp() writes it; NaN for another
/// text.
double seconds_of_timestamp(std::string_view timestamp);

}  // namespace automodel
