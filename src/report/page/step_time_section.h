#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "report/records/run_files.h"

namespace automodel::report {

/// Shares of a step's time, in this order: waiting for data, forward and backward passes, the
/// update, waiting for other ranks, and the rest.
inline constexpr size_t kNumTimeShares = 5;
inline constexpr std::array<std::string_view, kNumTimeShares> kTimeShareNames = {
    "waiting for data", "forward and backward", "update", "waiting for ranks", "rest"};
using TimeShares = std::array<double, kNumTimeShares>;

/// The shares of the steps in rows [begin, end) together; NaN where none of them records it.
/// Waiting for ranks is recorded as a part of the passes and the update, and is none of theirs
/// here: it is taken from the passes, and from the update what they do not have.
TimeShares step_time_shares(const StepTable& steps, size_t begin, size_t end);

/// Where the time of rank 0's steps goes over the run, as a stacked picture and numbers; of a
/// pipeline also the planned share of waiting. "" where no run records it.
std::string step_time_section(const RunViews& runs);

}  // namespace automodel::report
