#pragma once

#include <string>

#include "serve/run_index.h"

namespace automodel::serve {

/// The media type of metrics_text().
inline constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

/// What is known of runs in Prometheus' text format: gauges of each run's last step, with the label
/// `run`. A run without a step has only its status.
std::string metrics_text(const RunList& list);

/// What is known of runs, and of the folder they lie in, as a JSON object; numbers that are not
/// finite are null.
std::string runs_json(const RunList& list);

}  // namespace automodel::serve
