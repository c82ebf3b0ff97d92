#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace automodel::report {

/// A number in `digits` significant digits: "0.0012", "3.4e-06", "12.3k", "1.2M", "5B", "1.5T",
/// "nan"; with four it has at most about six characters.
std::string short_number(double value, int digits = 4);

/// Numbers next to each other, in as many digits as it takes to tell them apart.
std::vector<std::string> short_numbers(const std::vector<double>& values);

/// "2026-08-01 12:34:56" (UTC) of seconds since 1970; "" for NaN.
std::string time_text(double seconds);

/// "45 s", "12 min", "3.5 h", "2.1 d".
std::string span_text(double seconds);

/// Seconds in the unit in which span_text() shows a time: 1, 60, 3600 or 86400.
double time_unit(double seconds);

}  // namespace automodel::report
