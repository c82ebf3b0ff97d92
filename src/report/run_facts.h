#pragma once

#include <string>
#include <utility>
#include <vector>

#include "report/run_files.h"

namespace automodel::report {

/// A fact of a run in words, to show.
using Fact = std::pair<std::string, std::string>;

/// "done", "failed: rank 1 ...", "stopped by SIGTERM, saved", or that it is not known.
std::string state_text(const RecordedRun& run);

/// What a run is and has come to: state, steps, losses, rate, memory, model, ranks, machine. Every
/// run has the same facts in the same order; one that is not known is "".
std::vector<Fact> facts_of(const RecordedRun& run);

/// A part of the time that a run has taken.
struct TimeShare {
  std::string name;  ///< "steps", "validation", "saving", "loading", "resuming"
  double seconds = 0;
};

/// Where a run's time went, in that order; time between a stop and the next start does not count.
/// Empty where there are no events.
std::vector<TimeShare> time_shares(const RecordedRun& run);

/// What an event says besides its name, time and step: "rank: 1, status: 137, text: ...".
std::string detail_of(const RunEvent& event);

/// A key of a recipe whose values differ between runs, and the value of each; "" where it has none.
struct Difference {
  std::string key;
  std::vector<std::string> values;
};

/// What differs between the recipes of runs, in the order of the first recipe that has the key.
std::vector<Difference> differences(const std::vector<RecordedRun>& runs);

/// A value of a recipe as run.json has it: a text without quotes, others as JSON.
std::string value_text(const Json& value);

}  // namespace automodel::report
