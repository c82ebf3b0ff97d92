#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/records/run_files.h"

namespace automodel::report {

/// What the experts of a layer get, each by an even share: 1 is even.
struct LayerLoad {
  int64_t layer = 0;
  std::vector<double> loads;
};

/// The layers of an event of experts' loads; what has another form is passed over.
std::vector<LayerLoad> layer_loads(const RunEvent& event);

/// How evenly tokens went to experts: a picture of layers and experts of the latest record, the
/// extremes of every layer as numbers, and of the whole model over time. "" where no run records
/// it.
std::string experts_section(const RunViews& runs);

}  // namespace automodel::report
