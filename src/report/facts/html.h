#pragma once

#include <string>
#include <string_view>

namespace automodel::report {

/// A number in at most about six characters: "0.0012", "3.4e-06", "12.3k", "1.2M", "nan".
std::string short_number(double value);

/// "2026-08-01 12:34:56" (UTC) of seconds since 1970; "" for NaN.
std::string time_text(double seconds);

/// "45 s", "12 min", "3.5 h", "2.1 d".
std::string span_text(double seconds);

/// Seconds in the unit in which span_text() shows a time: 1, 60, 3600 or 86400.
double time_unit(double seconds);

}  // namespace automodel::report
